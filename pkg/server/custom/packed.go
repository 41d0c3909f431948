package custom

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// packed is an answer that is kept compressed. It is immutable.
type packed struct {
	mediaType, etag string
	body            []byte
}

// pack keeps what is needed of an answer.
func pack(answer *recording) (*packed, error) {
	if answer.code != http.StatusOK {
		return nil, fmt.Errorf("the answer is %d", answer.code)
	}
	var body bytes.Buffer
	w, err := gzip.NewWriterLevel(&body, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(answer.body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return &packed{mediaType: answer.header.Get("Content-Type"), etag: answer.header.Get("Etag"), body: bytes.Clone(body.Bytes())}, nil
}

// serve sends the answer, or says that the client has it already.
func (p *packed) serve(w http.ResponseWriter, req *http.Request) error {
	w.Header().Set("Content-Type", p.mediaType)
	w.Header().Set("Etag", p.etag)
	w.Header().Add("Vary", "Accept, Accept-Encoding")
	if strings.Contains(req.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(p.body))
		return nil
	}
	body, err := p.unpack()
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("what is kept cannot be decompressed: %w", err))
	}
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(body))
	return nil
}

func (p *packed) unpack() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(p.body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
