//go:build linux

// Kubelet is a node of Kubernetes for tests, on one Linux machine and without container images. Each pod has a network
// namespace, an address and a host name of its own, and each container has processes, mounts and a root file system of
// its own. An image consists of the programs of this machine, with the files of a directory on top.
//
//	kubelet --server https://127.0.0.1:6443 --ca apiserver.crt --token TOKEN --image NAME=DIR --logs DIR --certificate DIR
//
// It does what the controllers and users of Kubernetes see of a kubelet: the states of pods and containers, exit codes,
// restarts, init containers, probes, hooks, grace periods, environments, volumes and logs. It also answers the pods' questions
// for names of headless services. It asks the API server ten times a second instead of watching it.
//
// All pods are in the pid namespace of a process that ends with the kubelet, even by kill -9. They leave empty control
// groups, which the next kubelet removes.
// It needs root. It does not confine programs: root in a pod is root on the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lookInterval is the time between two looks at the pods of this node.
const lookInterval = 100 * time.Millisecond

// images maps the names of images to their directories. It is a flag.
type images map[string]string

func (i images) String() string { return "" }

func (i images) Set(value string) error {
	name, dir, found := strings.Cut(value, "=")
	if !found || name == "" || dir == "" {
		return errors.New("want NAME=DIR")
	}
	i[name] = dir
	return nil
}

// kubelet is one node.
type kubelet struct {
	api    *client
	node   *node
	images images
	logs   string // directory of the containers' output

	unlimited bool // this machine does not let pods have control groups

	mu   sync.Mutex // for writing pods, and for reading them beside the loop
	pods map[types.UID]*pod
}

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	k := &kubelet{images: images{}, pods: map[types.UID]*pod{}}
	server := flag.String("server", "", "take pods from the API server at `URL`")
	ca := flag.String("ca", "", "trust the API server by the certificate in `FILE`")
	token := flag.String("token", "", "log in to the API server with `TOKEN`")
	name := flag.String("node", "node1", "register as the node `NAME`")
	flag.StringVar(&k.logs, "logs", ".", "write what containers print to files in `DIR`, NAMESPACE_POD_CONTAINER.log")
	certificate := flag.String("certificate", "", "serve logs to the API server with tls.crt and tls.key in `DIR`")
	flag.Var(k.images, "image", "take `NAME=DIR` as an image: the files of this machine, with the directory on top")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unixTerm)
	defer stop()
	removeStaleCgroups()
	if err := enableLimits(); err != nil {
		log.Printf("pods run without limits: %v", err)
		k.unlimited = true
	}
	var err error
	if k.api, err = newClient(*server, *ca, *token); err != nil {
		return err
	}
	if k.node, err = newNode(*name, k.images); err != nil {
		return fmt.Errorf("make node: %w", err)
	}
	defer k.node.close()
	if *certificate != "" {
		if k.node.port, err = k.serveLogs(ctx, *certificate); err != nil {
			return fmt.Errorf("serve logs: %w", err)
		}
	}
	if err := k.node.register(ctx, k.api); err != nil {
		return fmt.Errorf("register node: %w", err)
	}
	names, err := k.node.listenDNS()
	if err != nil {
		return fmt.Errorf("listen for names: %w", err)
	}
	go serveDNS(ctx, names, k.api)
	beat := time.NewTicker(5 * time.Second)
	look := time.NewTicker(lookInterval)
	defer beat.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.node.ended:
			return errors.New("the first process of the node has ended")
		case <-beat.C:
			if err := k.node.beat(ctx, k.api); err != nil {
				log.Print(err)
			}
		case <-look.C:
			if err := k.look(ctx); err != nil && ctx.Err() == nil {
				log.Print(err)
			}
		}
	}
}

// look compares the pods that this node should have with its own, and reports each one that has changed.
func (k *kubelet) look(ctx context.Context) error {
	var list core.PodList
	if err := k.api.get(ctx, "/api/v1/pods?fieldSelector=spec.nodeName%3D"+k.node.name, &list); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	there := map[types.UID]bool{}
	for i := range list.Items {
		object := &list.Items[i]
		there[object.UID] = true
		p := k.pods[object.UID]
		if p == nil {
			if p = k.newPod(ctx, object); p == nil {
				continue
			}
			k.mu.Lock()
			k.pods[object.UID] = p
			k.mu.Unlock()
		}
		if object.DeletionTimestamp != nil {
			grace := int64(30)
			if object.DeletionGracePeriodSeconds != nil {
				grace = *object.DeletionGracePeriodSeconds
			}
			p.end(time.Duration(grace) * time.Second)
		}
	}
	for uid, p := range k.pods {
		if !there[uid] { // deleted without grace
			p.end(0)
			if p.gone() {
				k.mu.Lock()
				delete(k.pods, uid)
				k.mu.Unlock()
			}
			continue
		}
		if err := p.report(ctx); err != nil {
			log.Printf("report %s: %v", p.object.Name, err)
		}
	}
	return nil
}
