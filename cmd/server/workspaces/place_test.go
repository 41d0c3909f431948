package workspaces

import (
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func kubeconfig(server string) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: []byte("ca")}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "ann", Namespace: "n"}
	config.AuthInfos["ann"] = &clientcmdapi.AuthInfo{Token: "t"}
	config.AuthInfos["bob"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.CurrentContext = "x"
	return config
}

func TestAPathIsAbsoluteOrFromHere(t *testing.T) {
	for _, c := range []struct{ at, argument, want string }{
		{"root:a", "", "root:a"},
		{"root:a", ".", "root:a"},
		{"root:a", "b", "root:a:b"},
		{"root:a", "b:c", "root:a:b:c"},
		{"root:a", "..", "root"},
		{"root:a:b", "..:..", "root"},
		{"root:a:b", "..:c", "root:a:c"},
		{"root:a", ":", "root"},
		{"root:a", "root", "root"},
		{"root:a", "root:b", "root:b"},
		{"root:a", ":root:b", "root:b"},
		{"root:a", "rooted", "root:a:rooted"},
		{"root:a", "system:admin", "system:admin"},
		{"", "a", "root:a"},
		{"", ".", ""},
		{"root", "..", ""},
		{"root:a", "..:..:..", ""},
		{"2abc", "..", ""},
		{"root:a", "b c", ""},
		{"root:a", "B", ""},
		{"root:a", "b:", ""},
		{"root:a", "b::c", ""},
		{"root:a", "../b", ""},
		{"root:a", "*", ""},
	} {
		got, err := Place{Base: "https://s", Path: logicalcluster.NewPath(c.at)}.Resolve(c.argument)
		if (err == nil) != (c.want != "") || err == nil && got.String() != c.want {
			t.Errorf("%q at %q: %q, %v; want %q", c.argument, c.at, got, err, c.want)
		}
	}
}

func TestAPlaceIsReadFromTheServersURL(t *testing.T) {
	for server, want := range map[string]Place{
		"https://s:6443":                             {Base: "https://s:6443"},
		"https://s:6443/":                            {Base: "https://s:6443"},
		"https://s/clusters/root":                    {"https://s", logicalcluster.NewPath("root")},
		"https://s/clusters/root:a/":                 {"https://s", logicalcluster.NewPath("root:a")},
		"https://s/behind/clusters/root:a/api":       {"https://s/behind", logicalcluster.NewPath("root:a")},
		"https://[::1]:6443/clusters/htlxvr5ytcualj": {"https://[::1]:6443", logicalcluster.NewPath("htlxvr5ytcualj")},
	} {
		got, err := PlaceOf(kubeconfig(server), "x")
		if err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", server, got, err, want)
		}
	}
	for _, server := range []string{"", "s", "https://%zz", "/clusters/root"} {
		if got, err := PlaceOf(kubeconfig(server), "x"); err == nil {
			t.Errorf("%q: %v", server, got)
		}
	}
	for context, says := range map[string]string{"y": "no context", "lost": "not there"} {
		config := kubeconfig("https://s")
		config.Contexts["lost"] = &clientcmdapi.Context{Cluster: "gone"}
		if _, err := PlaceOf(config, context); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("context %s: %v", context, err)
		}
	}
}

// What the kubeconfig had stays, the user and the namespace are those of before, and the way back is known.
func TestEnteringKeepsTheWayBack(t *testing.T) {
	config := kubeconfig("https://s/clusters/root")
	if _, err := Previous(config); err == nil {
		t.Error("there is a way back to nowhere")
	}
	at := func() string {
		place, err := PlaceOf(config, config.CurrentContext)
		if err != nil {
			t.Fatal(err)
		}
		return place.URL()
	}
	back := func() Place {
		place, err := Previous(config)
		if err != nil {
			t.Fatal(err)
		}
		return place
	}
	Enter(config, "x", to("root:a"))
	Enter(config, config.CurrentContext, to("root:a:b"))
	if at() != "https://s/clusters/root:a:b" || back().Path.String() != "root:a" {
		t.Errorf("at %s, back leads to %s", at(), back().Path)
	}
	for _, want := range []string{"root:a", "root:a:b"} { // to and fro
		Enter(config, config.CurrentContext, back())
		if at() != "https://s/clusters/"+want {
			t.Errorf("at %s, want %s", at(), want)
		}
	}
	c := config.Contexts[config.CurrentContext]
	if c.AuthInfo != "ann" || c.Namespace != "n" || string(config.Clusters[c.Cluster].CertificateAuthorityData) != "ca" {
		t.Errorf("another user, namespace or authority: %+v", c)
	}
	if config.Clusters["c"].Server != "https://s/clusters/root" || config.Contexts["x"].Cluster != "c" {
		t.Error("the context of before has changed")
	}
}

func to(path string) Place { return Place{"https://s", logicalcluster.NewPath(path)} }

func TestAKubeconfigOfOneWorkspaceHasNobodyElsesCredentials(t *testing.T) {
	config := kubeconfig("https://s/clusters/root")
	got := Alone(config, "x", to("root:a"))
	place, err := PlaceOf(&got, got.CurrentContext)
	if err != nil || place.Path.String() != "root:a" || len(got.Contexts) != 1 || len(got.Clusters) != 1 {
		t.Errorf("leads to %v, %v: %+v", place, err, got)
	}
	if len(got.AuthInfos) != 1 || got.AuthInfos["ann"].Token != "t" {
		t.Errorf("has %v", got.AuthInfos)
	}
}
