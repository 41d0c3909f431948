package view

import (
	"fmt"
	"io"
)

// What rows of Top are about.
const (
	ByCluster  = "cluster"
	ByReplica  = "replica"
	ByResource = "resource"
)

// Top writes what logical clusters, replicas or resources were asked for in a second: by says which. Rows of replicas
// that cannot be asked may be among those of clusters.
func Top(w io.Writer, look Look, rows []Row, by string) error {
	if !look.IsFor() {
		return Encode(w, look.Format, rows)
	}
	p := &page{Look: look}
	table := [][]string{p.topHead(by)}
	for _, r := range rows {
		switch {
		case by == ByResource:
			table = append(table, append([]string{r.Resource}, rates(r)...))
		case by == ByReplica:
			table = append(table, p.replicaRow(r))
		case r.Fault == "":
			table = append(table, p.clusterRow(r))
		}
	}
	p.columns("", 2, table)
	for _, r := range rows {
		if r.Fault != "" {
			p.wrap("", fmt.Sprintf("%s/%s cannot be asked: %s", r.Shard, r.Replica, r.Fault))
		}
	}
	return p.flush(w)
}

func (p *page) topHead(by string) []string {
	switch by {
	case ByResource:
		return []string{"RESOURCE", "REQ/S", "WRITES/S", "REFUSED/S", "FAILED/S", "P99"}
	case ByCluster:
		head := []string{"CLUSTER", "REQ/S", "WRITES/S", "REFUSED/S", "FAILED/S", "429/S", "PLACES"}
		if p.wide() {
			head = append(head, "NAME")
		}
		return head
	}
	head := []string{"REPLICA", "STATE", "REQ/S", "WRITES/S", "REFUSED/S", "FAILED/S", "P99", "NOW", "CPU", "MEMORY"}
	if p.wide() {
		head = append(head, "WATCHES", "429/S", "FENCED/S", "ETCD/S", "CONNECTIONS")
	}
	return head
}

func (p *page) clusterRow(r Row) []string {
	row := []string{r.Name(), rate(r.Requests), rate(r.Writes), rate(r.Refused), rate(r.Failed), rate(r.TooMany), fmt.Sprintf("%.2f", r.Places)}
	if p.wide() {
		row = append(row, r.Cluster)
	}
	return row
}

func rates(r Row) []string {
	return []string{rate(r.Requests), rate(r.Writes), rate(r.Refused), rate(r.Failed), latency(r)}
}

func (p *page) replicaRow(r Row) []string {
	name := r.Shard + "/" + r.Replica
	if r.Fault != "" {
		return []string{name, orDash(r.State), "-"}
	}
	row := append([]string{name, orDash(r.State)}, rates(r)...)
	row = append(row, fmt.Sprint(r.Now), fmt.Sprintf("%.2f", r.CPU), fmt.Sprintf("%dMi", r.Memory>>20))
	if p.wide() {
		row = append(row, fmt.Sprint(r.Watches), rate(r.TooMany), rate(r.Fenced), rate(r.Etcd), fmt.Sprint(r.Connections))
	}
	return row
}

func rate(perSecond float64) string {
	if perSecond == 0 {
		return "0"
	}
	if perSecond < 10 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return fmt.Sprintf("%.0f", perSecond)
}

func latency(r Row) string {
	if r.P99 == 0 {
		return "-"
	}
	return span(r.Latency())
}
