//go:build linux

package main

import (
	"context"
	"errors"
	"log"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	discovery "k8s.io/api/discovery/v1"

	"golang.org/x/net/dns/dnsmessage"
)

// domain is where the names of services are, below their namespaces.
const domain = ".svc.cluster.local."

// serveDNS answers questions for names of headless services and of pods in them, from their EndpointSlices, until ctx ends.
func serveDNS(ctx context.Context, conn net.PacketConn, api *client) {
	go func() { <-ctx.Done(); conn.Close() }()
	for {
		packet := make([]byte, 1500)
		size, from, err := conn.ReadFrom(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		go func() {
			if reply := answer(packet[:size], func(name string) ([]netip.Addr, error) { return lookUp(ctx, api, name) }); reply != nil {
				conn.WriteTo(reply, from)
			}
		}()
	}
}

// answer returns the reply to a packet, or nil for one that is no question.
func answer(packet []byte, lookUp func(name string) ([]netip.Addr, error)) []byte {
	var m dnsmessage.Message
	if m.Unpack(packet) != nil || m.Response || len(m.Questions) != 1 {
		return nil
	}
	question := m.Questions[0]
	reply := dnsmessage.Message{Questions: m.Questions, Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true,
		RecursionDesired: m.RecursionDesired, RecursionAvailable: true}}
	addresses, err := lookUp(strings.ToLower(question.Name.String()))
	switch {
	case err != nil:
		log.Printf("look up %s: %v", question.Name, err)
		reply.RCode = dnsmessage.RCodeServerFailure
	case addresses == nil:
		reply.RCode = dnsmessage.RCodeNameError
	case question.Type == dnsmessage.TypeA:
		for _, a := range addresses {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: a.As4()}})
		}
	}
	packed, err := reply.Pack()
	if err != nil {
		log.Printf("answer %s: %v", question.Name, err)
		return nil
	}
	return packed
}

// lookUp returns the addresses of SERVICE.NAMESPACE or HOST.SERVICE.NAMESPACE in the domain; nil if there are none.
func lookUp(ctx context.Context, api *client, name string) ([]netip.Addr, error) {
	labels := strings.Split(strings.TrimSuffix(name, domain), ".")
	if !strings.HasSuffix(name, domain) || len(labels) < 2 || len(labels) > 3 {
		return nil, nil
	}
	host, service, namespace := "", labels[len(labels)-2], labels[len(labels)-1]
	if len(labels) == 3 {
		host = labels[0]
	}
	var list discovery.EndpointSliceList
	if err := api.get(ctx, "/apis/discovery.k8s.io/v1/namespaces/"+url.PathEscape(namespace)+"/endpointslices?labelSelector="+
		url.QueryEscape(discovery.LabelServiceName+"="+service), &list); err != nil {
		return nil, err
	}
	return addressesOf(list.Items, host), nil
}

// addressesOf returns the addresses of the endpoints that are ready, of one host or of all.
func addressesOf(slicesOfService []discovery.EndpointSlice, host string) (addresses []netip.Addr) {
	for _, s := range slicesOfService {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready || host != "" && (e.Hostname == nil || *e.Hostname != host) {
				continue
			}
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil && a.Is4() {
					addresses = append(addresses, a)
				}
			}
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(addresses)
}
