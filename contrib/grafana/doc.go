// Package grafana holds what Grafana and Prometheus need to show jobs of gorun: gorun.json is a board, alerts.yaml are
// rules, and prometheus.yaml is how both are fed. Its tests check them by Prometheus itself and by Grafana's schema, on
// what a real job serves. The module is apart, so that gorun does not depend on Prometheus' server.
package grafana
