package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// user is the uid and gid of the process: nobody's, and in the upper range, so that Kubernetes' runAsNonRoot
	// can check it.
	user = 65532
	home = "/var/lib/regent"
)

// image is an OCI layout that grows: its blobs by digest.
type image struct {
	release
	blobs map[digest.Digest][]byte
}

// writeImage writes an OCI layout as tar: an index with one image for each architecture.
func writeImage(w io.Writer, r release) error {
	i := &image{release: r, blobs: map[digest.Digest][]byte{}}
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Annotations: i.labels()}
	for _, b := range r.binaries {
		manifest, err := i.manifest(b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.arch, err)
		}
		index.Manifests = append(index.Manifests, manifest)
	}
	all, err := i.addJSON(v1.MediaTypeImageIndex, index)
	if err != nil {
		return err
	}
	all.Annotations = map[string]string{v1.AnnotationRefName: r.version}
	entries, err := i.layout(all)
	if err != nil {
		return err
	}
	return writeTar(w, r.date, entries)
}

// labels say what the image is. There is no name of a registry in it: the operator chooses where it is kept.
func (i *image) labels() map[string]string {
	return map[string]string{
		v1.AnnotationTitle:       "regent",
		v1.AnnotationDescription: "An API server for logical clusters, with exactly one leader among its replicas",
		v1.AnnotationVersion:     i.version,
		v1.AnnotationRevision:    i.revision,
		v1.AnnotationCreated:     i.date.UTC().Format(time.RFC3339),
		v1.AnnotationLicenses:    "Apache-2.0",
	}
}

// manifest adds the image for one architecture.
func (i *image) manifest(b binary) (v1.Descriptor, error) {
	programs, err := b.programs("")
	if err != nil {
		return v1.Descriptor{}, err
	}
	// What seldom changes comes first, so that it is fetched once.
	config, manifest := i.config(b.arch), v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Annotations: i.labels()}
	for _, layer := range []struct {
		of      string
		entries []entry
	}{{"users, certificates of public authorities, directories", base()}, {"etcdctl, etcdutl", programs[1:]}, {"regent", programs[:1]}} {
		added, plain, err := i.addLayer(layer.entries)
		if err != nil {
			return v1.Descriptor{}, err
		}
		manifest.Layers = append(manifest.Layers, added)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, plain)
		config.History = append(config.History, v1.History{Created: &i.date, CreatedBy: layer.of})
	}
	if manifest.Config, err = i.addJSON(v1.MediaTypeImageConfig, config); err != nil {
		return v1.Descriptor{}, err
	}
	out, err := i.addJSON(v1.MediaTypeImageManifest, manifest)
	out.Platform = &config.Platform
	return out, err
}

func (i *image) config(arch string) v1.Image {
	return v1.Image{
		Created: &i.date, Platform: v1.Platform{OS: "linux", Architecture: arch},
		Config: v1.ImageConfig{
			User: fmt.Sprintf("%d:%d", user, user), WorkingDir: home, Entrypoint: []string{"/regent"},
			Env: []string{"PATH=/", "HOME=" + home}, ExposedPorts: map[string]struct{}{"6443/tcp": {}}, StopSignal: "SIGTERM", Labels: i.labels(),
		},
		RootFS: v1.RootFS{Type: "layers"},
	}
}

// base is what a static program needs beside itself.
func base() []entry {
	return []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:\nregent:x:%d:\n", user)},
		{name: "etc/passwd", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:0:root:/:/nothing\nregent:x:%d:%d:regent:%s:/nothing\n", user, user, home)},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities()},
		{name: "tmp/", mode: 0o1777},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: home[1:] + "/", mode: 0o700, owner: user},
	}
}

// addLayer adds a layer, and returns the digest of its tar, too, before compression.
func (i *image) addLayer(entries []entry) (layer v1.Descriptor, plain digest.Digest, err error) {
	var packed bytes.Buffer
	of := digest.Canonical.Digester()
	err = compressed(&packed, func(w io.Writer) error { return writeTar(io.MultiWriter(w, of.Hash()), i.date, entries) })
	return i.add(v1.MediaTypeImageLayerGzip, packed.Bytes()), of.Digest(), err
}

func (i *image) addJSON(mediaType string, v any) (v1.Descriptor, error) {
	content, err := json.Marshal(v)
	return i.add(mediaType, content), err
}

func (i *image) add(mediaType string, content []byte) v1.Descriptor {
	d := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
	i.blobs[d.Digest] = content
	return d
}

// layout returns the files of the OCI layout that leads to one index.
func (i *image) layout(all v1.Descriptor) ([]entry, error) {
	version, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return nil, err
	}
	index, err := json.Marshal(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{all}})
	if err != nil {
		return nil, err
	}
	blobs := path.Join(v1.ImageBlobsDir, string(digest.Canonical))
	out := []entry{
		{name: v1.ImageLayoutFile, mode: 0o644, content: version},
		{name: v1.ImageIndexFile, mode: 0o644, content: index},
		{name: v1.ImageBlobsDir + "/", mode: 0o755},
		{name: blobs + "/", mode: 0o755},
	}
	for _, d := range slices.Sorted(maps.Keys(i.blobs)) {
		out = append(out, entry{name: path.Join(blobs, d.Encoded()), mode: 0o644, content: i.blobs[d]})
	}
	return out, nil
}
