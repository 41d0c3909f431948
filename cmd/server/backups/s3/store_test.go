package s3

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// setCredentials has those of the environment, and no others.
func setCredentials(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "")
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_REGION", "test-1")
}

// openAt returns a store whose server answers so, and which is given up soon.
func openAt(t *testing.T, serve http.HandlerFunc) *Store {
	t.Helper()
	setCredentials(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Last-Modified", "Mon, 30 Nov 2026 10:00:00 GMT")
		serve(w, r)
	}))
	t.Cleanup(server.Close)
	s, err := open(server.URL+"/bucket/some/prefix", "", 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// calls are what a store can be asked for.
var calls = map[string]func(*testing.T, *Store) error{
	"list": func(t *testing.T, s *Store) error { _, err := s.List(t.Context()); return err },
	"get":  func(t *testing.T, s *Store) error { return s.Get(t.Context(), "a", 10, io.Discard) },
	"put": func(t *testing.T, s *Store) error {
		text := strings.NewReader(strings.Repeat("x", 1<<20))
		return s.Put(t.Context(), "a", io.NewSectionReader(text, 0, text.Size()))
	},
	"put of much": func(t *testing.T, s *Store) error {
		text := strings.NewReader(strings.Repeat("x", partBytes+1))
		return s.Put(t.Context(), "a", io.NewSectionReader(text, 0, text.Size()))
	},
	"delete": func(t *testing.T, s *Store) error { return s.Delete(t.Context(), []string{"a", "b"}) },
}

// A server that takes a request and does not answer, or stops in the middle of the answer, is given up.
func TestAServerThatHangsIsGivenUp(t *testing.T) {
	for name, call := range calls {
		for kind, serve := range map[string]func(http.ResponseWriter, <-chan struct{}){
			"at once": func(_ http.ResponseWriter, ended <-chan struct{}) { <-ended },
			"in the middle": func(w http.ResponseWriter, ended <-chan struct{}) {
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, "<")
				_ = http.NewResponseController(w).Flush()
				<-ended
			},
		} {
			if name == "put" && kind == "in the middle" { // the answer is not read
				continue
			}
			t.Run(name+" "+kind, func(t *testing.T) {
				ended := make(chan struct{})
				s := openAt(t, func(w http.ResponseWriter, _ *http.Request) { serve(w, ended) })
				t.Cleanup(func() { close(ended) })
				if err := call(t, s); err == nil || !strings.Contains(err.Error(), "the store has not moved for 300ms") {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// An answer without end is given up before it fills the memory, or the disk.
func TestAnAnswerWithoutEndIsGivenUp(t *testing.T) {
	for name, call := range calls {
		for code, begin := range map[int]string{http.StatusOK: "<ListBucketResult>", http.StatusForbidden: "<Error>"} {
			if strings.HasPrefix(name, "put") && code == http.StatusOK { // the answer is not read
				continue
			}
			t.Run(fmt.Sprint(name, code), func(t *testing.T) {
				sent := 0
				ended := make(chan struct{})
				s := openAt(t, func(w http.ResponseWriter, r *http.Request) {
					defer close(ended)
					w.WriteHeader(code)
					_, err := io.WriteString(w, begin)
					for some := bytes.Repeat([]byte("<a></a>"), 1<<10); err == nil && r.Context().Err() == nil; {
						var n int
						n, err = w.Write(some)
						sent += n
					}
				})
				if err := call(t, s); err == nil {
					t.Error("it is no error")
				}
				s.client.Client.CredContext().Client.CloseIdleConnections()
				<-ended
				if sent > 4*answerBytes {
					t.Errorf("%d bytes were read", sent)
				}
			})
		}
	}
}

// A listing that never ends is given up.
func TestAListingWithoutEndIsGivenUp(t *testing.T) {
	for name, contents := range map[string]string{
		"of objects": strings.Repeat("<Contents><Key>some/prefix/a</Key><Size>1</Size></Contents>", 1000),
		"of nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			s := openAt(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"+contents+"</ListBucketResult>")
			})
			s.most = 5000
			if all, err := s.List(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 5000 objects") && !strings.Contains(err.Error(), "too slow") {
				t.Errorf("%d, %v", len(all), err)
			}
		})
	}
}

// What is not below the prefix is none of the store's.
func TestAListingHasNamesBelowThePrefix(t *testing.T) {
	asks := ""
	s := openAt(t, func(w http.ResponseWriter, r *http.Request) {
		asks = r.URL.Path + "?" + r.URL.Query().Get("prefix")
		_, _ = io.WriteString(w, `<ListBucketResult>
			<Contents><Key>some/prefix/a</Key><Size>7</Size><LastModified>2026-11-30T10:00:00Z</LastModified></Contents>
			<Contents><Key>some/other/b</Key><Size>7</Size></Contents>
			<Contents><Key>some/prefix/c/d</Key><Size>8</Size></Contents></ListBucketResult>`)
	})
	all, err := s.List(t.Context())
	if err != nil || len(all) != 2 || all[0] != (Object{"a", 7, time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)}) || all[1].Name != "c/d" || asks != "/bucket/?some/prefix/" {
		t.Errorf("%+v, %v, %s", all, err, asks)
	}
}

func TestAnObjectIsWholeOrMissing(t *testing.T) {
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		want  string
	}{
		"too short": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "123") }, "3 bytes of 10"},
		"too long":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "12345678901") }, "more than was asked for"},
		"missing": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code><Message>there is none</Message></Error>")
		}, ErrMissing.Error()},
		"refused": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>it may not</Message></Error>")
		}, "it may not"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openAt(t, c.serve)
			err := s.Get(t.Context(), "a", 10, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "/bucket/some/prefix/a") || errors.Is(err, ErrMissing) != (name == "missing") {
				t.Errorf("%v, want something with %q", err, c.want)
			}
		})
	}
}

func TestADeletionThatIsRefusedIsAnError(t *testing.T) {
	s := openAt(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<DeleteResult><Error><Key>some/prefix/b</Key><Code>AccessDenied</Code><Message>it is locked</Message></Error></DeleteResult>")
	})
	if err := s.Delete(t.Context(), []string{"a", "b"}); err == nil || !strings.Contains(err.Error(), "it is locked") || !strings.Contains(err.Error(), "prefix/b") {
		t.Error(err)
	}
}

// No credentials are in a URL, and no password is in an error.
func TestURLs(t *testing.T) {
	setCredentials(t)
	for url, want := range map[string]string{
		"https://who:hunter2@host/bucket/prefix": "AWS_ACCESS_KEY_ID",
		"https://who:hunter2@host:x/bucket":      "cannot be parsed",
		"ftp://host/bucket":                      "such as https://HOST/BUCKET/PREFIX",
		"https://host":                           "such as https://HOST/BUCKET/PREFIX",
		"https://host/":                          "such as https://HOST/BUCKET/PREFIX",
		"https:///bucket/prefix":                 "such as https://HOST/BUCKET/PREFIX",
		"https://host/bucket/prefix?x=y":         "such as https://HOST/BUCKET/PREFIX",
		"https://host/Bucket_/prefix":            "Bucket name",
		"bucket/prefix":                          "such as https://HOST/BUCKET/PREFIX",
	} {
		if _, err := Open(url, ""); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want something with %q", url, err, want)
		}
	}
	for _, url := range []string{"https://host/bucket", "https://host/bucket/a/b/", "http://127.0.0.1:9000/bucket/a"} {
		if _, err := Open(url, ""); err != nil {
			t.Error(err)
		}
	}
}

func TestWithoutCredentialsAnErrorSaysWhatToDo(t *testing.T) {
	s := openAt(t, func(http.ResponseWriter, *http.Request) { t.Error("it is asked") })
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	role := httptest.NewServer(http.NotFoundHandler())
	defer role.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL)
	for name, call := range calls {
		if err := call(t, s); err == nil || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAFileNamesTheStoresAuthority(t *testing.T) {
	setCredentials(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
	}))
	defer server.Close()
	server.Config.ErrorLog = nil
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for ca, want := range map[string]string{file: "", "": "certificate"} {
		s, err := Open(server.URL+"/bucket", ca)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.List(t.Context()); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", ca, err)
		}
	}
	if _, err := Open(server.URL+"/bucket", os.DevNull); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Error(err)
	}
}

// Credentials that are replaced in the file are used once the store refuses those of before.
func TestOtherCredentialsAreReadWhenTheStoreRefuses(t *testing.T) {
	s := openAt(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "Credential=second/") {
			_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "<Error><Code>InvalidAccessKeyId</Code></Error>")
	})
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	file := filepath.Join(os.Getenv("HOME"), ".aws", "credentials")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"first", "second"} {
		if err := os.WriteFile(file, []byte("[default]\naws_access_key_id="+key+"\naws_secret_access_key=secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := s.List(t.Context())
		if key == "first" && err == nil {
			t.Error("it is not refused")
		}
		if _, err = s.List(t.Context()); key == "second" && err != nil {
			t.Error(err)
		}
	}
}
