package pki

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// FuzzKeyFiles checks that whatever is in the four files, they are used as they are, made anew where one is missing, or
// refused by an error that names one of them; and that a file that was there is not changed. (A key whose certificate
// is missing is the remainder of a start that was cut short.)
func FuzzKeyFiles(f *testing.F) {
	whole := map[string][]byte{}
	directory := newDirectory(f)
	ensure(f, directory)
	names := []string{CACertFile, CAKeyFile, AdminCertFile, AdminKeyFile}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			f.Fatal(err)
		}
		whole[name] = content
	}
	for i, name := range names {
		for _, content := range [][]byte{
			nil, whole[name], whole[name][:len(whole[name])/2], bytes.ReplaceAll(whole[name], []byte("\n"), []byte("\r\n")),
			append([]byte("# a comment\n"), whole[name]...), append(whole[name][:0:0], append(whole[name], whole[name]...)...),
			whole[names[(i+1)%len(names)]], []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), {0},
		} {
			f.Add(uint8(i), content, false)
			f.Add(uint8(i), content, true)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, content []byte, alone bool) {
		directory := newDirectory(t)
		given := map[string][]byte{}
		if !alone {
			for name, whole := range whole {
				given[name] = whole
			}
		}
		given[names[int(which)%len(names)]] = content
		for name, content := range given {
			if err := os.WriteFile(filepath.Join(directory, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b, err := Ensure(directory)
		if err != nil {
			if !strings.Contains(err.Error(), directory) {
				t.Errorf("the error names no file: %v", err)
			}
		} else if _, _, err := b.ServingCert([]string{"localhost"}, nil); err != nil && given[CAKeyFile] != nil {
			t.Errorf("keys that were taken do not sign: %v", err)
		}
		for name, content := range given {
			remainder := name == CAKeyFile && given[CACertFile] == nil || name == AdminKeyFile && given[AdminCertFile] == nil
			now, err := os.ReadFile(filepath.Join(directory, name))
			if !remainder && (err != nil || !bytes.Equal(now, content)) {
				t.Errorf("%s was changed", name)
			}
		}
		if again, err2 := Ensure(directory); (err == nil) != (err2 == nil) || err == nil && !bytes.Equal(again.AdminKeyPEM, b.AdminKeyPEM) {
			t.Errorf("the second start ends otherwise: %v, and then %v", err, err2)
		}
	})
}

// FuzzKubeconfig checks that a kubeconfig of whatever make is kept as it is, or replaced by one that leads to the
// shard.
func FuzzKubeconfig(f *testing.F) {
	directory := newDirectory(f)
	b := ensure(f, directory)
	name := filepath.Join(directory, "admin.kubeconfig")
	const ours = "https://shard.example:6443"
	if _, err := b.WriteKubeconfig(name, Kubeconfig{BaseURL: ours}); err != nil {
		f.Fatal(err)
	}
	written, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	for _, content := range []string{
		string(written), "", "null", "[]", "clusters: {}", "clusters: [{name: root}]", "clusters: [{name: root, cluster: null}]",
		"clusters:\n- name: root\n  cluster: {server: 'https://other/clusters/root'}\n", strings.Replace(string(written), "shard.example", "other", 1),
		"apiVersion: v2\nkind: Config\n", "\x00", strings.Repeat("[", 1000), "a: &a [*a]",
	} {
		f.Add([]byte(content), false)
		f.Add([]byte(content), true)
	}
	f.Fuzz(func(t *testing.T, content []byte, replace bool) {
		name := filepath.Join(t.TempDir(), "admin.kubeconfig")
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		named, err := b.WriteKubeconfig(name, Kubeconfig{BaseURL: ours, Replace: replace})
		if err != nil {
			t.Fatalf("it was not written: %v", err)
		}
		now, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !replace {
			if !bytes.Equal(now, content) {
				t.Error("a file that was to be kept was changed")
			}
			return
		}
		if named != ours {
			t.Errorf("it names %q", named)
		}
		config, err := clientcmd.Load(now)
		if err != nil {
			t.Fatalf("what was written is no kubeconfig: %v", err)
		}
		if got := config.Clusters["root"].Server; got != ours+"/clusters/root" {
			t.Errorf("root leads to %q", got)
		}
	})
}
