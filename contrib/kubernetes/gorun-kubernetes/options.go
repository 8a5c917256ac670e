package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// options are the pairs of --kubernetes-options.
type options struct {
	name                string
	cpu, memory, shm    resource.Quantity // of a worker's pod
	gpu                 int
	mounts              []mount
	account, pullSecret string
	queue               string // of Kueue
	ttl, deadline       time.Duration
}

// mount is a claim of storage, and where pods have it.
type mount struct{ claim, path string }

// known lists the keys, for the hints of errors.
const known = "name, cpu, memory, gpu, shm, volume=CLAIM:/PATH, service-account, pull-secret, queue, ttl, deadline"

// parseOptions reads KEY=VALUE,… . A pod has a CPU and 2 GiB of memory for each slot by default.
func parseOptions(text string, slots int) (options, error) {
	o := options{ttl: time.Hour, cpu: *resource.NewQuantity(int64(slots), resource.DecimalSI),
		memory: *resource.NewQuantity(int64(slots)<<31, resource.BinarySI)}
	o.shm = *resource.NewQuantity(o.memory.Value()/2, resource.BinarySI)
	sized := false
	for pair := range strings.SplitSeq(text, ",") {
		if pair == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		if !found || value == "" {
			return o, &mistake{fmt.Errorf("--kubernetes-options %s: want KEY=VALUE", pair), "keys are " + known}
		}
		if err := o.set(key, value); err != nil {
			return o, &mistake{fmt.Errorf("--kubernetes-options %s: %w", pair, err), "keys are " + known}
		}
		sized = sized || key == "shm"
	}
	if !sized {
		o.shm = *resource.NewQuantity(o.memory.Value()/2, resource.BinarySI)
	}
	return o, nil
}

func (o *options) set(key, value string) (err error) {
	amount := map[string]*resource.Quantity{"cpu": &o.cpu, "memory": &o.memory, "shm": &o.shm}
	text := map[string]*string{"name": &o.name, "service-account": &o.account, "pull-secret": &o.pullSecret, "queue": &o.queue}
	span := map[string]*time.Duration{"ttl": &o.ttl, "deadline": &o.deadline}
	switch {
	case amount[key] != nil:
		if *amount[key], err = resource.ParseQuantity(value); err != nil || amount[key].Sign() <= 0 {
			return fmt.Errorf("not an amount, such as 4 or 8Gi")
		}
		if bytes := key != "cpu"; bytes && amount[key].Value() < 1<<20 || !bytes && amount[key].Format == resource.BinarySI {
			return fmt.Errorf("not an amount of that: cpu=4, memory=8Gi, shm=4Gi")
		}
	case text[key] != nil:
		*text[key] = value
	case span[key] != nil:
		if *span[key], err = time.ParseDuration(value); err != nil || *span[key] < time.Second {
			return fmt.Errorf("not a time, such as 90m")
		}
	case key == "gpu":
		if o.gpu, err = strconv.Atoi(value); err != nil || o.gpu < 0 {
			return fmt.Errorf("not a number")
		}
	case key == "volume":
		claim, path, found := strings.Cut(value, ":")
		if !found || claim == "" || !strings.HasPrefix(path, "/") {
			return fmt.Errorf("want CLAIM:/PATH")
		}
		o.mounts = append(o.mounts, mount{claim, path})
	default:
		return fmt.Errorf("no such option")
	}
	return nil
}
