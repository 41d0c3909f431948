package ui

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, method, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest(method, path, nil)
	for name := range header {
		req.Header.Set(name, header.Get(name))
	}
	w := httptest.NewRecorder()
	Handler(nil).ServeHTTP(w, req)
	return w
}

func TestThePageIsServedWithAPolicyThatLetsNothingElseRun(t *testing.T) {
	for path, contentType := range map[string]string{
		"/ui/": "text/html", "/ui/main.js": "text/javascript", "/ui/vendor/preact.js": "text/javascript", "/ui/style.css": "text/css", "/ui/icon.svg": "image/svg+xml",
	} {
		got := get(t, http.MethodGet, path, nil)
		if got.Code != http.StatusOK || !strings.HasPrefix(got.Header().Get("Content-Type"), contentType) || got.Header().Get("Content-Security-Policy") != policy {
			t.Errorf("%s: %d, %v", path, got.Code, got.Header())
		}
		again := get(t, http.MethodGet, path, http.Header{"If-None-Match": {got.Header().Get("ETag")}})
		if again.Code != http.StatusNotModified {
			t.Errorf("%s, when the browser has it: %d, want 304", path, again.Code)
		}
	}
	for path, want := range map[string]int{"/ui": http.StatusMovedPermanently, "/ui/../go.mod": http.StatusNotFound, "/ui/vendor/": http.StatusNotFound, "/ui/nothing.js": http.StatusNotFound, "/ui/docs/": http.StatusNotFound} {
		if got := get(t, http.MethodGet, path, nil); got.Code != want {
			t.Errorf("%s: %d, want %d", path, got.Code, want)
		}
	}
	if got := get(t, http.MethodPost, "/ui/", nil); got.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", got.Code)
	}
}

// What the policy would refuse must not be in the files: it would fail only in browsers.
func TestThePageIsSmallAndAsksNobodyElse(t *testing.T) {
	const limit = 300 << 10
	inline := regexp.MustCompile(`(?i)<script(?:>|[^>]*[^>c]>[^<])|\son[a-z]+="|\sstyle="|javascript:|<style`)
	elsewhere := regexp.MustCompile(`https?://[^\s"'<>)]+`)
	size := 0
	err := fs.WalkDir(assets, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(assets, name)
		size += len(content)
		if strings.HasSuffix(name, ".LICENSE") {
			return err
		}
		if strings.HasSuffix(name, ".html") && inline.Match(content) {
			t.Errorf("%s has something inline: %s", name, inline.Find(content))
		}
		for _, url := range elsewhere.FindAllString(string(content), -1) {
			if !strings.HasPrefix(url, "http://www.w3.org/") { // names of XML
				t.Errorf("%s names %s", name, url)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if size > limit {
		t.Errorf("the page has %d bytes, more than %d", size, limit)
	}
}
