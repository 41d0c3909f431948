package deploy

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// unpack writes the files of a tar below a directory, with the modes and, as root, the owners that it says.
func unpack(t *testing.T, archive io.Reader, to string) {
	t.Helper()
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(to, filepath.Clean("/"+header.Name))
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			if err := os.Symlink(header.Linkname, name); err != nil {
				t.Fatal(err)
			}
			continue
		default:
			content, readErr := io.ReadAll(r)
			err = errors.Join(readErr, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, content, 0o600))
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Chown(name, header.Uid, header.Gid)
		}
		if err = errors.Join(err, os.Chmod(name, header.FileInfo().Mode())); err != nil {
			t.Fatal(err)
		}
	}
}

func unpackFile(t *testing.T, file, to string) {
	t.Helper()
	archive, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	unpack(t, archive, to)
}

// readImage returns the image for this machine, of a file that make image has written.
func readImage(t *testing.T, file string) v1.Image {
	t.Helper()
	directory := t.TempDir()
	unpackFile(t, file, directory)
	index, err := layout.ImageIndexFromPath(directory)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatalf("no sound OCI layout: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v0.0.0-test" {
		t.Fatalf("%+v, %v", manifest, err)
	}
	platforms, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = platforms.IndexManifest(); err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	if p := manifest.Manifests[0].Platform; p == nil || p.OS != "linux" || p.Architecture != runtime.GOARCH {
		t.Errorf("for %v", p)
	}
	image, err := platforms.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// unpackImage returns a root directory with what the image's layers have.
func unpackImage(t *testing.T, image v1.Image) string {
	t.Helper()
	directory, err := os.MkdirTemp(scratch, "rootfs-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		unpack(t, content, directory)
		if err := content.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

func TestTheSameSourceGivesTheSameImage(t *testing.T) {
	here, there := directories(t)
	same(t, filepath.Join(here, "regent-image.tar"), filepath.Join(there, "regent-image.tar"))
}

func TestTheImageRunsAsNobodyAndSaysWhatItIs(t *testing.T) {
	file := builtImage(t)
	config, err := readImage(t, file).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/regent"}) || c.StopSignal != "SIGTERM" {
		t.Errorf("user %q, entrypoint %q, stopped by %q", c.User, c.Entrypoint, c.StopSignal)
	}
	for label, want := range map[string]string{"title": "regent", "version": "v0.0.0-test", "revision": packedCommit, "created": "2026-01-31T00:00:00Z"} {
		if got := c.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	if got := config.Created.UTC().Format("2006"); got != "2026" {
		t.Errorf("made in %s", got)
	}
}

func TestTheProgramInTheImageNeedsNothingElse(t *testing.T) {
	pod := &process{root: unpackImage(t, readImage(t, builtImage(t)))}
	if out := pod.run(t, "version"); !strings.Contains(out, "regent.v0.0.0-test") || !strings.Contains(out, "linux/"+runtime.GOARCH) {
		t.Errorf("it says %q", out)
	}
	certificates, err := os.ReadFile(filepath.Join(pod.root, "etc/ssl/certs/ca-certificates.crt"))
	if n := strings.Count(string(certificates), "BEGIN CERTIFICATE"); err != nil || n < 50 {
		t.Errorf("%d public authorities, %v", n, err)
	}
}

// Whoever runs the image can back up its etcd with it: docs/BACKUP.md.
func TestTheImageHasEtcdsTools(t *testing.T) {
	pod := &process{root: unpackImage(t, readImage(t, builtImage(t)))}
	for _, program := range []string{"etcdctl", "etcdutl"} {
		if out, err := exec.CommandContext(t.Context(), filepath.Join(pod.root, program), "version").Output(); err != nil || !strings.Contains(string(out), program+" version: 3.7") {
			t.Errorf("%s says %q, %v", program, out, err)
		}
	}
}

// builtImage returns the file of the image.
func builtImage(t *testing.T) string {
	t.Helper()
	here, _ := directories(t)
	return filepath.Join(here, "regent-image.tar")
}
