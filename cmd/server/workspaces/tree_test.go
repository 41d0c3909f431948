package workspaces

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/client-go/rest"
)

// A shard that is down hides only what is on it.
func TestATreeIsCompleteButForWhatCannotBeAsked(t *testing.T) {
	in := map[string][]string{"root": {"a", "b", "c"}, "root:a": {"x", "y"}, "root:a:x": {}, "root:a:y": {"z"}, "root:a:y:z": {}, "root:c": {}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/clusters/"), "/")
		names, ok := in[path]
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"not for you"}`))
			return
		}
		if req.Header.Get("Accept") != "application/json;as=Table;g=meta.k8s.io;v=v1" || req.URL.Query().Get("includeObject") != "Object" {
			t.Errorf("%s with Accept: %s", req.URL, req.Header.Get("Accept"))
		}
		rows := []any{}
		for _, name := range names {
			rows = append(rows, map[string]any{"cells": []any{name, "eu1", "Unreachable"}, "object": map[string]any{"metadata": map[string]any{"name": name}}})
		}
		columns := []any{map[string]any{"name": "Name"}, map[string]any{"name": "Shard"}, map[string]any{"name": "Phase"}}
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Table", "columnDefinitions": columns, "rows": rows})
	}))
	defer server.Close()
	client := NewClient(&rest.Config{Host: server.URL, QPS: -1}, Place{Base: server.URL})
	got := client.Tree(t.Context(), logicalcluster.NewPath("root")).Lines(func(n *Node) string {
		switch {
		case n.Fault != nil && strings.Contains(n.Fault.Error(), "not for you"):
			return "!"
		case n.Workspace != nil && (n.Workspace.Shard != "eu1" || n.Workspace.Phase != "Unreachable"):
			return "?"
		}
		return ""
	})
	want := []string{
		"root",
		"├── a",
		"│   ├── x",
		"│   └── y",
		"│       └── z",
		"├── b!",
		"└── c",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s", strings.Join(got, "\n"))
	}
}

// Of a hundred thousand workspaces not all can be asked in time: what is known is shown, and the rest says so.
func TestATreeEndsInTime(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	asks := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asks++
		stop() // after the first answer
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Table"}`))
	}))
	defer server.Close()
	root := NewClient(&rest.Config{Host: server.URL, QPS: -1}, Place{Base: server.URL}).Tree(ctx, logicalcluster.NewPath("root"))
	again := NewClient(&rest.Config{Host: server.URL, QPS: -1}, Place{Base: server.URL}).Tree(ctx, logicalcluster.NewPath("root"))
	if asks != 1 || root.Fault == nil && len(root.Nodes) > 0 || again.Fault != ErrNotAsked {
		t.Errorf("%d questions, then %v", asks, again.Fault)
	}
}
