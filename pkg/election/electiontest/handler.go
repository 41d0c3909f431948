package electiontest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/regent-project/regent/pkg/election/fence"
)

// LeasesPath is below which Handler serves.
const LeasesPath = "/apis/coordination.k8s.io/v1/namespaces/"

// Handler serves the Leases of c's Store, in any namespace, as an API server does, with c's faults. It is for programs
// that make their client from a rest.Config. It looks at fencing tokens if the Store is fenced (Store.Fence).
func Handler(c *Client) http.Handler { return &handler{c} }

type handler struct{ client *Client }

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.Split(strings.TrimPrefix(req.URL.Path, LeasesPath), "/") // <namespace>/leases[/<name>]
	if !strings.HasPrefix(req.URL.Path, LeasesPath) || len(path) < 2 || path[1] != "leases" {
		h.fail(w, apierrors.NewGenericServerResponse(http.StatusNotFound, req.Method, coordinationv1.Resource("leases"), "", req.URL.Path, 0, false))
		return
	}
	query := req.URL.Query()
	opts := metav1.ListOptions{FieldSelector: query.Get("fieldSelector"), ResourceVersion: query.Get("resourceVersion")}
	name := path[len(path)-1]
	switch req.Method {
	case http.MethodGet:
		if len(path) > 2 {
			opts.FieldSelector = "metadata.name=" + name
		}
		if query.Get("watch") != "" && query.Get("watch") != "false" && query.Get("watch") != "0" {
			h.watch(w, req, opts)
			return
		}
		list, err := h.client.List(req.Context(), opts)
		switch {
		case err != nil || len(path) == 2:
			h.answer(w, list, err)
		case len(list.Items) == 0:
			h.fail(w, apierrors.NewNotFound(coordinationv1.Resource("leases"), name))
		default:
			h.answer(w, &list.Items[0], nil)
		}
	case http.MethodPost, http.MethodPut:
		lease, err := leaseIn(req)
		token, malformed := fence.Parse(req.Header.Values(fence.Header))
		if err = errors.Join(err, malformed); err != nil {
			h.fail(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		var written *coordinationv1.Lease
		ctx := fence.With(req.Context(), token)
		if req.Method == http.MethodPut {
			written, err = h.client.Update(ctx, lease, metav1.UpdateOptions{})
		} else {
			written, err = h.client.Create(ctx, lease, metav1.CreateOptions{DryRun: query["dryRun"]})
		}
		h.answer(w, written, err)
	case http.MethodDelete:
		h.answer(w, &metav1.Status{Status: metav1.StatusSuccess}, h.client.Delete(req.Context(), name, metav1.DeleteOptions{}))
	default:
		h.fail(w, apierrors.NewMethodNotSupported(coordinationv1.Resource("leases"), req.Method))
	}
}

// leaseIn returns the Lease in a request's body, in any encoding of Kubernetes.
func leaseIn(req *http.Request) (*coordinationv1.Lease, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	lease := &coordinationv1.Lease{}
	err = runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, lease)
	return lease, err
}

// watch sends the changes until the request ends.
func (h *handler) watch(w http.ResponseWriter, req *http.Request, opts metav1.ListOptions) {
	events, err := h.client.Watch(req.Context(), opts)
	if err != nil {
		h.fail(w, err)
		return
	}
	defer events.Stop()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	for _ = flush(); ; _ = flush() {
		event, open := <-events.ResultChan()
		if !open {
			return
		}
		object, err := encoded(event.Object)
		if err != nil || json.NewEncoder(w).Encode(metav1.WatchEvent{Type: string(event.Type), Object: runtime.RawExtension{Raw: object}}) != nil {
			return
		}
	}
}

func (h *handler) answer(w http.ResponseWriter, object runtime.Object, err error) {
	if err != nil {
		h.fail(w, err)
		return
	}
	h.write(w, http.StatusOK, object)
}

// fail answers with an error. One that has no Status is answered as a server that is overloaded would do.
func (h *handler) fail(w http.ResponseWriter, err error) {
	status := apierrors.NewServiceUnavailable(err.Error()).Status()
	if said, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status = said.Status()
	}
	h.write(w, int(status.Code), &status)
}

func (h *handler) write(w http.ResponseWriter, code int, object runtime.Object) {
	body, err := encoded(object)
	if err != nil {
		code, body = http.StatusInternalServerError, []byte(err.Error())
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// encoded returns an object as JSON, with its kind.
func encoded(object runtime.Object) ([]byte, error) {
	return runtime.Encode(scheme.Codecs.LegacyCodec(coordinationv1.SchemeGroupVersion, metav1.Unversioned), object)
}

var _ http.Handler = (*handler)(nil)
