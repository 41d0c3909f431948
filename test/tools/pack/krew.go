package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// writeKrew writes the manifest with which krew installs `kubectl regent` from the archives of a release: see
// https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest. The files are archives here, each called as where
// people download it, below r.url.
func writeKrew(w io.Writer, r release) error {
	text, err := os.ReadFile(filepath.Join(r.tree, "go.mod"))
	if err != nil {
		return err
	}
	module := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(text)
	if module == nil {
		return fmt.Errorf("%s has no line module", filepath.Join(r.tree, "go.mod"))
	}
	home := "https://" + string(module[1])
	url := r.url
	if url == "" {
		url = home + "/releases/download/" + r.version
	}
	var platforms strings.Builder
	for _, b := range r.binaries {
		content, err := os.ReadFile(b.file)
		if err != nil {
			return err
		}
		name := filepath.Base(b.file)
		fmt.Fprintf(&platforms, `  - selector:
      matchLabels:
        os: linux
        arch: %s
    uri: %s/%s
    sha256: %x
    files:
    - from: %[5]s/regent
      to: .
    - from: %[5]s/LICENSE
      to: .
    bin: regent
`, b.arch, strings.TrimSuffix(url, "/"), name, sha256.Sum256(content), strings.TrimSuffix(name, ".tar.gz"))
	}
	_, err = fmt.Fprintf(w, `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: regent
spec:
  version: %s
  homepage: %s
  shortDescription: Look at shards of Regent, and operate them
  description: |
    Says who leads a shard of Regent and why, how its replicas and controllers
    are doing, and what is wrong, with what to do about it. Has the leader hand
    over, adds shards, renews certificates, and finishes upgrades.
  caveats: |
    The kubeconfig has to lead to a shard or a front of Regent.
  platforms:
%s`, r.version, home, platforms.String())
	return err
}
