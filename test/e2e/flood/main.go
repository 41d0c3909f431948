// Command flood is a tenant that asks for all it can get: so many requests are under way all the time, gets, lists of
// everything and creations, and so many watches are open. It ends when its standard input is closed, and prints what it
// was told, as JSON.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Counts are what a flood prints in the end: how many answers had which status, 0 for none, how many bytes they had,
// and the CPU time that the flood itself took.
type Counts struct {
	Statuses map[string]int
	Bytes    int64
	CPU      time.Duration
}

type flood struct {
	url, token string
	clients    []*http.Client
	pause      time.Duration

	mu     sync.Mutex
	counts Counts
}

func main() {
	f := &flood{counts: Counts{Statuses: map[string]int{}}}
	flag.StringVar(&f.url, "url", "", "URL of the tenant's logical cluster")
	flag.StringVar(&f.token, "token", "", "bearer token")
	flag.DurationVar(&f.pause, "pause", 0, "how long to wait after a 429, whatever Retry-After says")
	requests := flag.Int("requests", 1000, "how many requests are under way")
	watches := flag.Int("watches", 0, "how many watches are open")
	connections := flag.Int("connections", 10, "over how many connections")
	burn := flag.Bool("burn", false, "ask for nothing, but use the CPU as much as it can")
	harm := flag.Bool("harm", false, "do all at once that may harm others")
	nice := flag.Int("nice", 0, "priority of the process")
	flag.Parse()
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, *nice); err != nil {
		fmt.Fprintln(os.Stderr, "cannot set the priority:", err)
		os.Exit(1)
	}
	for range *connections {
		f.clients = append(f.clients, &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, //nolint:gosec // a test's server
			MaxConnsPerHost: 1, HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true},
		}})
	}
	ctx, stop := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	for n := range *requests {
		asking.Go(func() { f.ask(ctx, f.clients[n%len(f.clients)], n) })
	}
	for n := range *watches {
		asking.Go(func() { f.watch(ctx, f.clients[n%len(f.clients)]) })
	}
	if *harm {
		asking.Go(func() { f.harm(ctx) })
	}
	if *burn {
		for range 2 {
			asking.Go(func() {
				for ctx.Err() == nil {
				}
			})
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	asking.Wait()
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	f.counts.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	_ = json.NewEncoder(os.Stdout).Encode(f.counts)
}

// ask sends one request after the other.
func (f *flood) ask(ctx context.Context, client *http.Client, n int) {
	const of = "/api/v1/namespaces/default/configmaps"
	for i := n; ctx.Err() == nil; i++ {
		method, path, body := http.MethodGet, of+"/flooded-0", ""
		switch i % 10 {
		case 0, 1:
			path = of
		case 2, 3:
			method, path, body = http.MethodPost, of, `{"metadata":{"generateName":"flood-"},"data":{"a":"b"}}`
		}
		if f.send(ctx, client, method, path, body) == http.StatusTooManyRequests && f.pause > 0 {
			select {
			case <-time.After(f.pause):
			case <-ctx.Done():
			}
		}
	}
}

func (f *flood) watch(ctx context.Context, client *http.Client) {
	for ctx.Err() == nil {
		f.send(ctx, client, http.MethodGet, "/api/v1/configmaps?watch=true", "")
	}
}

func (f *flood) send(ctx context.Context, client *http.Client, method, path, body string) (status int) {
	req, err := http.NewRequestWithContext(ctx, method, f.url+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	if f.token != "" {
		req.Header.Set("Authorization", "Bearer "+f.token)
	}
	req.Header.Set("Content-Type", "application/json")
	var taken int64
	resp, err := client.Do(req)
	if err == nil {
		taken, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		status = resp.StatusCode
	}
	if ctx.Err() != nil {
		return status
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Statuses[strconv.Itoa(status)]++
	f.counts.Bytes += taken
	return status
}
