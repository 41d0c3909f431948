package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

const crdsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// badDefinition returns a definition of a resource whose spec has a schema.
func badDefinition(plural, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%s.example.com"},"spec":{
		"group":"example.com","scope":"Namespaced","names":{"plural":%q,"kind":"K%s"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":%s}}}}]}}`, plural, plural, plural, spec)
}

func repeated(n int, text func(int) string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = text(i)
	}
	return strings.Join(parts, ",")
}

// nested returns a schema in so many others.
func nested(n int, before, inner, after string) string {
	return strings.Repeat(before, n) + inner + strings.Repeat(after, n)
}

func TestBadDefinitionsGetAClearErrorAndHurtNobodyElse(t *testing.T) {
	r := startWithNeighbours(t)
	stop, ended := make(chan struct{}), sync.WaitGroup{}
	slowest := time.Duration(0)
	ended.Go(func() { // of the other cluster
		for n := 0; ; n++ {
			began := time.Now()
			name := fmt.Sprint("c", n)
			code, _ := r.try(context.Background(), http.MethodPost, "other", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"`+name+`"}}`)
			if slowest = max(slowest, time.Since(began)); code != http.StatusCreated {
				t.Errorf("in another cluster: %d", code)
			}
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	pairs := func(items int) string {
		return fmt.Sprintf(`{"type":"object","properties":{"l":{"type":"array","maxItems":%d,"items":{"type":"string","maxLength":10},
			"x-kubernetes-validations":[{"rule":"self.all(x, self.all(y, self.all(z, x != y || y != z)))"}]}}}`, items)
	}
	for name, tc := range map[string]struct {
		spec string
		code int
		want string
	}{
		"aref":       {`{"$ref":"#/properties/spec"}`, 422, "$ref"},
		"apattern":   {`{"type":"string","pattern":"["}`, 422, "pattern"},
		"adefault":   {`{"type":"integer","default":"x"}`, 422, "default"},
		"anofield":   {`{"type":"object","properties":{"a":{"type":"nothing"}}}`, 422, "type"},
		"unbounded":  {`{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"},"x-kubernetes-validations":[{"rule":"self.all(x, self.all(y, x == y))"}]}}}`, 422, "cost"},
		"over":       {pairs(1000), 422, "cost"},
		"norule":     {`{"type":"string","x-kubernetes-validations":[{"rule":"self.nothing(("}]}`, 422, "x-kubernetes-validations"},
		"wrongtype":  {`{"type":"string","x-kubernetes-validations":[{"rule":"self + 1 == 2"}]}`, 422, "x-kubernetes-validations"},
		"deep":       {nested(2000, `{"type":"object","properties":{"a":`, `{"type":"string"}`, `}}`), 201, ""},
		"toodeep":    {nested(12000, `{"not":`, `{}`, `}`), 400, "depth"},
		"properties": {`{"type":"object","properties":{` + repeated(10000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"string"}`, i) }) + `}}`, 201, ""},
		"enums":      {`{"type":"string","enum":[` + repeated(20000, func(i int) string { return fmt.Sprintf(`"e%d"`, i) }) + `]}`, 201, ""},
		"allofs":     {`{"type":"object","properties":{"a":{"type":"string"}},"allOf":[` + nested(200, `{"allOf":[{"properties":{"a":{"minLength":1}}},`, `{"properties":{"a":{"maxLength":9}}}`, `]}`) + `]}`, 201, ""},
		"patterns": {`{"type":"object","properties":{` + repeated(2000, func(i int) string {
			return fmt.Sprintf(`"p%d":{"type":"string","pattern":"^(a{1,100}){1,9}b{%d}$"}`, i, i%100)
		}) + `}}`, 201, ""},
		"rules": {`{"type":"object","properties":{` + repeated(300, func(i int) string {
			return fmt.Sprintf(`"p%d":{"type":"string","maxLength":5,"x-kubernetes-validations":[{"rule":"self != 'x%d'"}]}`, i, i)
		}) + `}}`, 201, ""},
		"large":     {`{"type":"object","description":"` + strings.Repeat("x", 2<<20) + `"}`, 413, "make it smaller"},
		"verylarge": {`{"type":"object","description":"` + strings.Repeat("x", 4<<20) + `"}`, 413, ""},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			code, body := r.try(t.Context(), http.MethodPost, "own", crdsPath, badDefinition(name, tc.spec))
			t.Logf("%d after %v: %.200s", code, time.Since(began), body)
			if code != tc.code || !strings.Contains(body, tc.want) {
				t.Errorf("%d %.400s, want %d with %q", code, body, tc.code, tc.want)
			}
			if code != http.StatusCreated {
				return
			}
			r.establish(t, "own", name+".example.com", name)
			began = time.Now()
			object := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"K%s","metadata":{"name":"x"}}`, name)
			until(t, "it is served", func() bool {
				code, body = r.try(t.Context(), http.MethodPost, "own", "/apis/example.com/v1/namespaces/default/"+name, object)
				return code != http.StatusNotFound
			})
			if code != http.StatusCreated {
				t.Errorf("creation: %d %.300s", code, body)
			}
			t.Logf("served after %v", time.Since(began))
			if code, body := r.try(t.Context(), http.MethodGet, "own", "/openapi/v3/apis/example.com/v1", ""); code != http.StatusOK {
				t.Errorf("schemas: %d %.300s", code, body)
			}
		})
	}
	for size, want := range map[int]string{2 << 20: "make it smaller", 4 << 20: "limit is 3145728"} {
		t.Run(fmt.Sprintf("applied, of %d MB", size>>20), func(t *testing.T) {
			spec := `{"type":"object","description":"` + strings.Repeat("x", size) + `"}`
			code, body := r.try(t.Context(), http.MethodPatch, "own", crdsPath+"/applied.example.com?fieldManager=a", badDefinition("applied", spec))
			if code != http.StatusRequestEntityTooLarge || !strings.Contains(body, want) {
				t.Errorf("%d %.300s, want 413 with %q", code, body, want)
			}
		})
	}
	t.Run("kubectl's note of it", func(t *testing.T) {
		d := strings.Replace(badDefinition("noted", `{"type":"object"}`), `"metadata":{`, `"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"`+strings.Repeat("x", 257<<10)+`"},`, 1)
		if code, body := r.try(t.Context(), http.MethodPost, "own", crdsPath, d); code != 422 || !strings.Contains(body, "metadata.annotations: Too long") {
			t.Errorf("%d %.300s", code, body)
		}
	})
	close(stop)
	ended.Wait()
	t.Logf("the slowest creation in another cluster took %v", slowest)
	if slowest > 10*time.Second {
		t.Errorf("a creation in another cluster took %v", slowest)
	}
}

// establish does what the controller does, which these replicas do not have.
func (r *replica) establish(t *testing.T, cluster, name, plural string) {
	t.Helper()
	names := map[string]any{"plural": plural, "singular": "k" + plural, "kind": "K" + plural, "listKind": "K" + plural + "List"}
	status, err := json.Marshal(map[string]any{"status": map[string]any{"acceptedNames": names, "conditions": []any{
		map[string]any{"type": "NamesAccepted", "status": "True"}, map[string]any{"type": "Established", "status": "True"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	r.send(t, http.MethodPatch, cluster, crdsPath+"/"+name+"/status", string(status))
}

// try has an administrator ask, on any goroutine. A patch is an apply.
func (r *replica) try(ctx context.Context, method, cluster, path, body string) (int, string) {
	req, err := http.NewRequestWithContext(ctx, method, r.url+"/clusters/"+cluster+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Authorization", "Bearer t-root")
	req.Header.Set("Content-Type", map[bool]string{true: "application/apply-patch+yaml", false: "application/json"}[method == http.MethodPatch])
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(read)
}
