package controlplane

import (
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// serveDNS answers the pods' questions for names of headless services and of pods in them, from their EndpointSlices.
func (e *engine) serveDNS() {
	var conn net.PacketConn
	e.await("address of the node", func() bool {
		c, err := net.ListenPacket("udp4", nodeAddress+":53")
		conn = c
		return err == nil
	})
	done := make(chan struct{})
	e.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		for packet := make([]byte, 1500); ; {
			size, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(packet[:size]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			question := m.Questions[0]
			found := e.lookUp(strings.ToLower(question.Name.String()))
			if len(found) == 0 {
				m.RCode = dnsmessage.RCodeNameError
			}
			for _, a := range found {
				if question.Type == dnsmessage.TypeA {
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 1},
						Body: &dnsmessage.AResource{A: [4]byte(net.ParseIP(a).To4())}})
				}
			}
			if packed, err := m.Pack(); err == nil {
				conn.WriteTo(packed, from)
			}
		}
	}()
}

// lookUp returns the addresses of SERVICE.NAMESPACE.svc.cluster.local or HOST.SERVICE.NAMESPACE.svc.cluster.local.
func (e *engine) lookUp(name string) (addresses []string) {
	name, found := strings.CutSuffix(name, ".svc.cluster.local.")
	labels := strings.Split(name, ".")
	if len(labels) == 2 {
		labels = append([]string{""}, labels...)
	}
	if !found || len(labels) != 3 {
		return nil
	}
	var list struct {
		Items []struct {
			Endpoints []struct {
				Addresses  []string
				Hostname   string
				Conditions struct{ Ready bool }
			}
		}
	}
	text, status := e.call("GET", "/apis/discovery.k8s.io/v1/namespaces/"+url.PathEscape(labels[2])+"/endpointslices?labelSelector=kubernetes.io/service-name%3D"+
		url.QueryEscape(labels[1]), "")
	if status != http.StatusOK || json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	for _, item := range list.Items {
		for _, end := range item.Endpoints {
			if end.Conditions.Ready && (labels[0] == "" || labels[0] == end.Hostname) {
				addresses = append(addresses, end.Addresses...)
			}
		}
	}
	return addresses
}
