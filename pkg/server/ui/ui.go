// Package ui has the page that shows an installation: who leads and who led, what is wrong, controllers and workspaces.
// Beside it is the documentation.
// Servers serve it at Path to users whom they know, and `regent ui` on loopback with a kubeconfig's credentials. The
// page asks the server that it came from, and nobody else. Its files are embedded; vendor/ has preact and htm as their
// projects publish them (docs/UI.md).
package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

// Path is where the page is, below any server that serves it.
const Path = "/ui/"

// policy lets the page run its own files and ask its own server. There are no inline scripts or styles, and nobody may
// frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed assets
var assets embed.FS

// file is one of the page's files.
type file struct {
	content     []byte
	contentType string
	etag        string
}

func newFile(name string, content []byte) file {
	sum := sha256.Sum256(content)
	return file{content: content, contentType: typeOf(name), etag: `"` + hex.EncodeToString(sum[:16]) + `"`}
}

// page serves the files by their paths below Path, and the documentation.
type page struct {
	files map[string]file
	docs  *docs // nil: there is none
}

// Handler returns the page, and documentation whose files have the paths of the repository (package regent), or none
// for nil. It answers GET and HEAD below Path, with 404 for what is no file of the page.
func Handler(documentation fs.FS) http.Handler {
	out := page{files: map[string]file{}}
	if documentation != nil {
		out.docs = newDocs(documentation)
	}
	root, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the directory is embedded
	}
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		out.files[name] = newFile(name, content)
		return err
	})
	if err != nil {
		panic(err) // the files are embedded
	}
	out.files[""] = out.files["index.html"]
	return out
}

// typeOf does not ask the machine, whose table may say something else.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".LICENSE":
		return "text/plain; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// ServeHTTP implements http.Handler.
func (p page) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name, isBelow := strings.CutPrefix(req.URL.Path, Path)
	f, ok := p.files[name]
	switch {
	case req.URL.Path+"/" == Path:
		http.Redirect(w, req, Path, http.StatusMovedPermanently)
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the page can only be read", http.StatusMethodNotAllowed)
	case !isBelow:
		http.NotFound(w, req)
	case p.docs != nil && strings.HasPrefix(name+"/", docsPath):
		p.docs.serve(w, req, name)
	case !ok:
		http.NotFound(w, req)
	default:
		f.serve(w, req, http.StatusOK)
	}
}

// serve answers with a file. The code is 200, or that of an error.
func (f file) serve(w http.ResponseWriter, req *http.Request, code int) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("Content-Type", f.contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-cache") // the browser asks each time, by the ETag: another build may serve
	if code != http.StatusOK {
		w.WriteHeader(code)
		_, _ = w.Write(f.content) // on an error the browser has gone
		return
	}
	header.Set("ETag", f.etag)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(f.content))
}
