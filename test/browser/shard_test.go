package browser

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"
)

// shard is `regent dev`, and `regent ui` beside it.
type shard struct {
	dev, ui    *process
	root       string
	kubeconfig string
	url        string // of the page, with the secret
	api        string // of the balancer
	client     *http.Client
}

// Ports in a row, of which the kernel may give some to others meanwhile: then another row is tried.
const attempts = 5

// startShard starts one, with more flags for dev.
func startShard(directory string, more ...string) (*shard, error) {
	var faults []error
	for n := range attempts {
		s := &shard{root: filepath.Join(directory, strconv.Itoa(n))}
		err := s.start(more)
		if err == nil {
			return s, nil
		}
		faults = append(faults, err)
		if s.dev != nil {
			_ = s.dev.stop()
		}
	}
	return nil, errors.Join(faults...)
}

func (s *shard) start(more []string) (err error) {
	port, err := portsInARow(3)
	if err != nil {
		return err
	}
	if s.dev, err = begin(nil, append([]string{"dev", "--root-directory=" + s.root, fmt.Sprintf("--secure-port=%d", port)}, more...)...); err != nil {
		return err
	}
	if _, err := s.dev.until(regexp.MustCompile(`\n  kill -9 `)); err != nil {
		return err
	}
	s.kubeconfig, s.api = filepath.Join(s.root, "admin.kubeconfig"), fmt.Sprintf("https://127.0.0.1:%d", port)
	if s.client, err = clientOf(s.kubeconfig); err != nil {
		return err
	}
	if s.ui, err = begin([]string{"KUBECONFIG=" + s.kubeconfig}, "ui"); err != nil {
		return err
	}
	found, err := s.ui.until(regexp.MustCompile(`(http://127\.0\.0\.1:\d+/ui/\?\S+)\n`))
	if err == nil {
		s.url = found[1]
	}
	return err
}

func (s *shard) stop() error {
	s.client.CloseIdleConnections()
	return errors.Join(s.ui.stop(), s.dev.stop())
}

func portsInARow(n int) (int, error) {
	for range 100 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := first.Addr().(*net.TCPAddr).Port
		_ = first.Close()
		free := 0
		for ; free < n; free++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+free))
			if err != nil {
				break
			}
			_ = l.Close()
		}
		if free == n {
			return port, nil
		}
	}
	return 0, errors.New("there are no free ports in a row")
}

// clientOf has the credentials of a kubeconfig that dev has written. The authority is not checked: all is on this
// machine.
func clientOf(kubeconfig string) (*http.Client, error) {
	content, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	part := func(name string) []byte {
		found := regexp.MustCompile(name + `: (\S+)`).FindSubmatch(content)
		if found == nil {
			return nil
		}
		decoded, _ := base64.StdEncoding.DecodeString(string(found[1]))
		return decoded
	}
	certificate, err := tls.X509KeyPair(part("client-certificate-data"), part("client-key-data"))
	if err != nil {
		return nil, fmt.Errorf("%s has no client certificate: %w", kubeconfig, err)
	}
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}}, ForceAttemptHTTP2: true,
	}}, nil
}

// createWorkspaces creates workspaces below root, or below a workspace in it, side by side.
func (s *shard) createWorkspaces(t *testing.T, path string, names ...string) {
	t.Helper()
	var creating sync.WaitGroup
	queue := make(chan string)
	for range 8 {
		creating.Go(func() {
			for name := range queue {
				body := fmt.Sprintf(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":%q}}`, name)
				resp, err := s.client.Post(s.api+"/clusters/"+path+"/apis/tenancy.kcp.io/v1alpha1/workspaces", "application/json", bytes.NewBufferString(body))
				if err != nil {
					t.Error(err)
					continue
				}
				answer, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusConflict {
					t.Errorf("workspace %s:%s: %s: %s", path, name, resp.Status, answer)
				}
			}
		})
	}
	for _, name := range names {
		queue <- name
	}
	close(queue)
	creating.Wait()
}

// part is a part of a status.Installation.
type part struct {
	Shards []struct {
		Leader   string
		Replicas []struct {
			Name, Fault, URL string
			Election         struct {
				State string
				Epoch int
			}
		}
	}
}

// leader returns who leads, once both replicas answer.
func (s *shard) leader(t *testing.T) (leader, standby string) {
	t.Helper()
	until(t, "one replica leads and one stands by", func() bool {
		resp, err := s.client.Get(s.api + "/regent/v1/installation")
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		var of part
		if json.NewDecoder(resp.Body).Decode(&of) != nil || len(of.Shards) != 1 || len(of.Shards[0].Replicas) != 2 {
			return false
		}
		leader, standby = "", ""
		for _, r := range of.Shards[0].Replicas {
			switch {
			case r.Election.State == "leading" && of.Shards[0].Leader == r.Name:
				leader = r.Name
			case r.Election.State == "standing by" && r.Fault == "":
				standby = r.Name
			}
		}
		return leader != "" && standby != ""
	})
	return leader, standby
}

// pageOf returns where a replica's own page is, as the administrator sees it: a browser that shows the administrator's
// certificate.
func (s *shard) pageOf(t *testing.T, replica string) string {
	t.Helper()
	resp, err := s.client.Get(s.api + "/regent/v1/installation")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var of part
	if err := json.NewDecoder(resp.Body).Decode(&of); err != nil {
		t.Fatal(err)
	}
	for _, r := range of.Shards[0].Replicas {
		if r.Name != replica {
			continue
		}
		at, err := url.Parse(r.URL)
		if err != nil {
			t.Fatal(err)
		}
		shows := httptest.NewServer(&httputil.ReverseProxy{Transport: s.client.Transport, Rewrite: func(req *httputil.ProxyRequest) {
			req.SetURL(at)
			req.Out.Host = req.In.Host // by which the server knows the page's own requests
		}})
		t.Cleanup(shows.Close)
		return shows.URL + "/ui/"
	}
	t.Fatalf("there is no replica %s", replica)
	return ""
}

// pid returns the process of the leader, as dev has told it.
func (s *shard) pid(t *testing.T) int {
	t.Helper()
	all := regexp.MustCompile(`replica-(\d+) leads shard root, epoch \d+\. To kill it: kill -9 (\d+)`).FindAllStringSubmatch(s.dev.output(), -1)
	if len(all) == 0 {
		t.Fatalf("dev does not say who leads:\n%s", s.dev.output())
	}
	pid, err := strconv.Atoi(all[len(all)-1][2])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain for %v: %s", patience, what)
		}
	}
}

// chromium is the browser, or "".
func chromium() string {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}
