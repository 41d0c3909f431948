package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// harm does all at once that one tenant has ever stopped a shard with, within the rights of an administrator of a
// workspace. It returns when ctx has ended.
func (f *flood) harm(ctx context.Context) {
	f.define(ctx)
	var acting sync.WaitGroup
	again := func(hands int, pause time.Duration, act func(client *http.Client)) {
		for n := range hands {
			acting.Go(func() {
				client := f.clients[n%len(f.clients)]
				for ctx.Err() == nil {
					act(client)
					select {
					case <-time.After(pause):
					case <-ctx.Done():
					}
				}
			})
		}
	}
	do := func(method, path, body string) func(*http.Client) {
		return func(client *http.Client) { f.send(ctx, client, method, path, body) }
	}
	const configMaps = "/api/v1/namespaces/default/configmaps"
	const harms = "/apis/harm.example.com/v1/namespaces/default/harms"
	for range 12 {
		acting.Go(func() { f.readSlowly(ctx, configMaps) })
	}
	f.send(ctx, f.clients[0], http.MethodPost, harms, fmt.Sprintf(`{"apiVersion":"harm.example.com/v1","kind":"Harm","metadata":{"name":"large"},"spec":{"color":"red","text":%q}}`, strings.Repeat("x", 500<<10)))
	again(100, time.Second, do(http.MethodGet, harms+"?watch=true&fieldSelector=spec.color%3Dnone", ""))
	again(1, time.Second, func(client *http.Client) {
		f.patch(ctx, client, harms+"/large", fmt.Sprintf(`{"spec":{"n":%d}}`, rand.Int()))
	})
	again(8, 0, do(http.MethodGet, configMaps+"?limit=1&labelSelector=none%3Dx", ""))
	again(4, 10*time.Millisecond, func(client *http.Client) { f.rewrite(ctx, client, configMaps) })
	again(4, 10*time.Millisecond, func(client *http.Client) {
		event := `{"metadata":{"generateName":"harm-"},"involvedObject":{"namespace":"default"},"message":%q}`
		f.send(ctx, client, http.MethodPost, "/api/v1/namespaces/default/events", fmt.Sprintf(event, strings.Repeat("x", 900)))
	})
	for _, name := range []string{"../../../watch/namespaces/default/configmaps", ".", `a\u0001b`} {
		owned := `{"metadata":{"generateName":"harm-","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"%s","uid":"x"}]}}`
		again(1, 20*time.Millisecond, do(http.MethodPost, configMaps, fmt.Sprintf(owned, name)))
	}
	for _, twice := range []string{`"\u212aind":"Other"`, `"Metadata":{"namespace":".."}`, `"KIND":"Other"`} {
		again(1, 100*time.Millisecond, do(http.MethodPost, harms, `{"apiVersion":"harm.example.com/v1","kind":"Harm","metadata":{"generateName":"harm-"},`+twice+`}`))
	}
	again(2, 20*time.Millisecond, func(client *http.Client) { f.defineAndDelete(ctx, client) })
	again(4, 0, do(http.MethodGet, "/openapi/v2", ""))
	again(4, 0, func(client *http.Client) {
		f.send(ctx, client, http.MethodGet, configMaps+"/x/"+strings.Repeat("s", 1000)+fmt.Sprint(rand.Int()), "")
	})
	stranger := &flood{url: f.url, counts: Counts{Statuses: map[string]int{}}}
	again(4, 0, func(client *http.Client) {
		stranger.send(ctx, client, http.MethodGet, "/api/v1/"+strings.Repeat("u", 1000), "")
	})
	again(4, 0, func(client *http.Client) {
		guesser := &flood{url: f.url, token: fmt.Sprint("made-up-", rand.Int()), counts: Counts{Statuses: map[string]int{}}}
		guesser.send(ctx, client, http.MethodGet, configMaps, "")
	})
	acting.Wait()
}

// define makes the kind of the custom objects.
func (f *flood) define(ctx context.Context) {
	f.send(ctx, f.clients[0], http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("harms.harm.example.com", "harms", "Harm", ""))
	for range 100 {
		if f.send(ctx, f.clients[0], http.MethodGet, "/apis/harm.example.com/v1/harms", "") == http.StatusOK || ctx.Err() != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func definition(name, plural, kind, finalizers string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":%q%s},"spec":{"group":"harm.example.com",
"names":{"plural":%q,"kind":%q},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"selectableFields":[{"jsonPath":".spec.color"}],
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"color":{"type":"string"}}}}}}}]}}`,
		name, finalizers, plural, kind)
}

// defineAndDelete leaves a definition that goes when its finalizer does, which is never.
func (f *flood) defineAndDelete(ctx context.Context, client *http.Client) {
	plural := fmt.Sprintf("h%ds", rand.IntN(1<<30))
	const all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	f.send(ctx, client, http.MethodPost, all, definition(plural+".harm.example.com", plural, strings.ToUpper(plural[:1])+plural[1:], `,"finalizers":["harm.example.com/stays"]`))
	f.send(ctx, client, http.MethodDelete, all+"/"+plural+".harm.example.com", "")
}

func (f *flood) rewrite(ctx context.Context, client *http.Client, configMaps string) {
	name := fmt.Sprint("large-", rand.IntN(6))
	body := fmt.Sprintf(`{"metadata":{"name":%q},"data":{"a":%q}}`, name, strings.Repeat(fmt.Sprint(rand.IntN(10)), 900<<10))
	if f.send(ctx, client, http.MethodPut, configMaps+"/"+name, body) == http.StatusNotFound {
		f.send(ctx, client, http.MethodPost, configMaps, body)
	}
}

func (f *flood) patch(ctx context.Context, client *http.Client, path, body string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, f.url+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.token)
	req.Header.Set("Content-Type", "application/merge-patch+json")
	if resp, err := client.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// readSlowly asks for a list, and reads a byte a second of it.
func (f *flood) readSlowly(ctx context.Context, path string) {
	transport := f.clients[0].Transport.(*http.Transport).Clone()
	transport.ReadBufferSize = 1
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+path, nil)
		if err != nil {
			panic(err)
		}
		req.Header.Set("Authorization", "Bearer "+f.token)
		resp, err := client.Do(req)
		for one := make([]byte, 1); err == nil; {
			if _, err = resp.Body.Read(one); err == nil {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}
