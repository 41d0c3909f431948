package e2e

import (
	"crypto/ecdsa"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/regent-project/regent/test/e2e/harness"
)

// odd is a replica that was given the wrong things: an address at which others do not reach it, a certificate that
// expires soon, another version.
type odd struct {
	*harness.Replica
	// probe is where others look for its probe.
	probe string
	// kinds are what is wrong with it all the time.
	kinds []string
}

// startOdd starts it, and waits until others know it.
func (p *patient) startOdd() {
	p.Helper()
	shown, key := shardsAuthority(p.T, p.both[0]).issueUntil(time.Now().Add(3*24*time.Hour), "odd")
	host, port := "127.0.0.3", harness.FreePorts(p.T, 1)[0] // it does not listen there
	p.shard.Binary, p.shard.Args = harness.Binary("regent"), nil
	r := p.shard.Start(p.T, "odd", "--etcd-servers="+p.etcd.URL, "--advertise-address="+host, fmt.Sprintf("--probe-port=%d", port), "--tls-cert-file="+shown, "--tls-private-key-file="+key)
	p.odd = &odd{r, net.JoinHostPort(host, fmt.Sprint(port)), []string{"replica-silent", "certificate", "versions"}}
	harness.Eventually(p.T, "the odd one is known", func() bool { return p.listed(r) != "nothing" })
}

// shardsAuthority returns the authority of a replica's shard.
func shardsAuthority(t *testing.T, r *harness.Replica) *authority {
	t.Helper()
	a := &authority{t: t, directory: t.TempDir(), file: filepath.Join(r.Root, "pki", "ca.crt")}
	certs, err := cert.CertsFromFile(a.file)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := os.ReadFile(filepath.Join(r.Root, "pki", "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.key = certs[0], key.(*ecdsa.PrivateKey)
	return a
}

// oddLeads has the odd replica lead while something listens in place of its probe, until the returned function is
// called. Nil: nothing does.
func (p *patient) oddLeads(listen func(net.Listener) net.Listener) (undo func()) {
	p.Helper()
	stop := func() {}
	if listen != nil {
		listener, err := net.Listen("tcp", p.odd.probe)
		if err != nil {
			p.Fatal(err)
		}
		listener = listen(listener)
		var held []net.Conn
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				if secured, ok := conn.(*tls.Conn); ok {
					_ = secured.HandshakeContext(p.Context())
				}
				held = append(held, conn)
			}
		}()
		stop = func() {
			_ = listener.Close()
			<-ended
			for _, conn := range held {
				_ = conn.Close()
			}
		}
	}
	p.Cleanup(stop)
	harness.Eventually(p.T, "the odd one leads", func() bool {
		if p.odd.Leads() {
			return true
		}
		for _, r := range p.both {
			if r.Leads() {
				_ = r.Kube("system:admin").Discovery().RESTClient().Post().AbsPath("/election/step-down").Body([]byte(`{"to":"` + replicaOf(p.odd.Replica) + `"}`)).Do(p.Context()).Error()
			}
		}
		return false
	})
	return func() {
		stop()
		p.odd.StepDown("so that another one leads")
	}
}

// oddSymptoms are the faults of the odd replica. Its probe is found wrong by those that follow it.
var oddSymptoms = []symptom{
	{
		fault: "a replica's address leads elsewhere", kinds: []string{"replica-silent"},
		says: []string{"connection refused", "Check --advertise-address and network policies."},
		do:   func(*patient) func() { return nil },
	},
	{
		fault: "a certificate expires soon, and versions differ", kinds: []string{"certificate", "versions"},
		says: []string{`Certificate "serving" of`, "expires in", "$ regent pki renew", "--tls-cert-file", "Servers run different versions"},
		do: func(p *patient) func() {
			p.asked = p.odd.Replica
			return nil
		},
	},
	{
		fault: "contact refused", kinds: []string{"contact"},
		says: []string{"is refused at the leader's probe", "(contact: refused)", "--advertise-address and --probe-port: they must lead to its own machine"},
		do:   func(p *patient) func() { return p.oddLeads(nil) },
	},
	{
		fault: "contact unreachable", kinds: []string{"contact"},
		says: []string{"cannot reach the leader's probe", "(contact: unreachable)", "Replicas must reach each other on --probe-port"},
		do: func(p *patient) func() {
			return p.oddLeads(func(l net.Listener) net.Listener { return l })
		},
	},
	{
		fault: "contact untrusted", kinds: []string{"contact"},
		says: []string{"finds another process at the leader's probe", "(contact: untrusted)", "Take the proxy away"},
		do: func(p *patient) func() {
			pair, err := tls.LoadX509KeyPair(newAuthority(p.T, "nobody").issue("nobody"))
			if err != nil {
				p.Fatal(err)
			}
			return p.oddLeads(func(l net.Listener) net.Listener {
				return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
			})
		},
	},
}
