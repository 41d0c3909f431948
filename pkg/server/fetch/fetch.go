// Package fetch asks HTTP servers for something short, and bounds what they answer. A server that lies, or that another
// one has taken the place of, must not fill the memory of whoever asks it.
//
// Errors name no server: whoever asks knows it. Those of the request itself are returned as they are, because they say
// whether anything was sent.
package fetch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"
)

// Answer is an answer that was read to its end.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// Refusal is the error of an answer other than 200.
type Refusal struct {
	Code int
	// Message is what the answer says, in one line: the message of a Status, or the beginning of the body.
	Message string
}

// Error implements error.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("it answers %d %s", r.Code, http.StatusText(r.Code))
	if r.Message != "" {
		text += ": " + r.Message
	}
	return text
}

// Do sends a request once, and reads the answer, whatever its status is. send is the method Do of an http.Client, or
// RoundTrip of a transport. An answer of more than limit bytes is an error.
func Do(send func(*http.Request) (*http.Response, error), req *http.Request, limit int64) (*Answer, error) {
	resp, err := send(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("its answer breaks off: %w", err)
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("it answers with more than %d bytes", limit)
	}
	return &Answer{resp.StatusCode, resp.Header, body}, nil
}

// Get asks for a URL, and returns the answer, which may have limit bytes. An answer other than 200 is a Refusal.
func Get(ctx context.Context, send func(*http.Request) (*http.Response, error), url string, limit int64) (*Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return Do(func(req *http.Request) (*http.Response, error) { return accept(send(req)) }, req, limit)
}

// Check asks for a URL, and returns an error unless the answer is 200. It does not read what that says.
func Check(ctx context.Context, send func(*http.Request) (*http.Response, error), url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := accept(send(req))
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	return nil
}

// longestRefusal is how much is read of an answer other than 200, in bytes.
const longestRefusal = 8 << 10

// accept closes an answer other than 200, and returns it as an error.
func accept(resp *http.Response, err error) (*http.Response, error) {
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, longestRefusal)) // the status says it, too
	_ = resp.Body.Close()
	return nil, &Refusal{resp.StatusCode, message(body)}
}

// Refusal returns nil if the answer is 200.
func (a *Answer) Refusal() *Refusal {
	if a.Code == http.StatusOK {
		return nil
	}
	return &Refusal{a.Code, message(a.Body)}
}

// Decode decodes the answer, which must be one value of JSON.
func (a *Answer) Decode(into any) error {
	if err := json.Unmarshal(a.Body, into); err != nil {
		return fmt.Errorf("its answer is not to be understood: %w", err)
	}
	return nil
}

// longestMessage is how long a Message may be, in bytes.
const longestMessage = 300

// message returns what an answer other than 200 says. An API server says "404" to who may list the paths that there
// are by that list.
func message(body []byte) string {
	var says struct {
		Message string
		Paths   []string
	}
	text := string(body)
	if json.Unmarshal(body, &says) == nil {
		if len(says.Paths) > 0 {
			return "no such path"
		}
		text = cmp.Or(says.Message, text)
	}
	text = strings.Join(strings.FieldsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }), " ")
	if len(text) > longestMessage {
		text = strings.ToValidUTF8(text[:longestMessage], "") + "..."
	}
	return text
}
