package serviceaccounts

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/status"
)

// peer is another shard: what it publishes, what it has, and whether it hangs.
type peer struct {
	key       *ecdsa.PrivateKey
	issuer    *Issuer
	published func(*Published) // what a shard that lies publishes
	world     *world
	down      bool
	hangs     bool
	// others is what it knows of other shards. Nil: nothing.
	others *Others
}

// peersOf are the other shards. home says which shard has a cluster.
type peersOf struct {
	mu    sync.Mutex
	peers map[string]*peer
	home  map[logicalcluster.Name]string
	asked map[string]int // questions about accounts, and homes
	moved map[logicalcluster.Name]string
	here  *Authenticator
	world *world // of this shard
}

func (p *peersOf) Hears() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]bool{}
	for name, one := range p.peers {
		out[name] = !one.down
	}
	return out
}

func (p *peersOf) count(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[what]++
}

func (p *peersOf) questions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := 0
	for n := range maps.Values(p.asked) {
		sum += n
	}
	return sum
}

func (p *peersOf) Ask(ctx context.Context, shard, path string, _ time.Duration, _ int64) ([]byte, error) {
	p.mu.Lock()
	of := p.peers[shard]
	p.mu.Unlock()
	if of.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	path, query, _ := strings.Cut(path, "?")
	if path == status.TokenKeysPath {
		out, err := of.issuer.Published()
		if of.published != nil {
			of.published(&out)
		}
		body, _ := json.Marshal(out)
		return body, err
	}
	p.count(shard + " account")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	question, err := ReadQuestion(values)
	if err != nil {
		return nil, err
	}
	ask := NewAuthenticator(of.issuer, of.world).Answer
	if of.others != nil {
		ask = of.others.Answer
	}
	answer, err := ask(ctx, question)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

func (p *peersOf) CheckHome(_ context.Context, shard string, cluster logicalcluster.Name) error {
	p.count(shard + " home")
	if p.home[cluster] != shard {
		return fmt.Errorf("cluster %s is not on shard %s", cluster, shard)
	}
	return nil
}

func (p *peersOf) Home(_ context.Context, cluster logicalcluster.Name) (string, error) {
	p.count("home of " + cluster.String())
	if home, ok := p.home[cluster]; ok {
		return home, nil
	}
	return "", fmt.Errorf("no shard has cluster %s", cluster)
}

func (p *peersOf) HasMovedFrom(shard string, cluster logicalcluster.Name) bool {
	return p.moved[cluster] == shard
}

// twoShards are a, which has cluster c7 with the account, and b, which has c8 with one of the same name.
func twoShards(t *testing.T) (*peersOf, *Others) {
	t.Helper()
	p := &peersOf{peers: map[string]*peer{}, home: map[logicalcluster.Name]string{"c7": "a", "c8": "b"}, asked: map[string]int{}}
	for _, name := range []string{"a", "b"} {
		key := newECDSA(t, elliptic.P256())
		issuer := newIssuer(t, key)
		issuer.Name, issuer.Audiences = name, []string{name}
		p.peers[name] = &peer{key: key, issuer: issuer, world: newWorld()}
	}
	p.peers["a"].world.stored[theAccount] = object("u1")
	p.peers["b"].world.stored["serviceaccounts c8|n/bot"] = object("u2")
	own := newIssuer(t, newECDSA(t, elliptic.P256()))
	p.world = newWorld()
	p.here = NewAuthenticator(own, p.world)
	o := NewOthers(p, p.here)
	o.learn(t.Context())
	return p, o
}

// by has a shard sign a token.
func (p *peersOf) by(t *testing.T, shard string, cluster logicalcluster.Name, lifetime time.Duration) string {
	t.Helper()
	return issue(t, p.peers[shard].issuer, func(g *Grant) {
		g.Cluster, g.Audiences, g.Lifetime = cluster, []string{shard}, lifetime
		if cluster == "c8" {
			g.Account.UID = "u2"
		}
	})
}

func TestAnAccountOfAnotherShardIsWhoItIsAtHome(t *testing.T) {
	p, o := twoShards(t)
	token := p.by(t, "a", "c7", time.Hour)
	elsewhere, ok, err := o.AuthenticateToken(t.Context(), token)
	if err != nil || !ok {
		t.Fatalf("%t, %v", ok, err)
	}
	home, _, err := NewAuthenticator(p.peers["a"].issuer, p.peers["a"].world).AuthenticateToken(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(home.User) != fmt.Sprint(elsewhere.User) || home.User.GetExtra()[clusters.IdentityClusterExtra][0] != "c7" {
		t.Errorf("at home %v, elsewhere %v", home.User, elsewhere.User)
	}
}

func TestWhatNoShardHasSignedLeadsToNoQuestion(t *testing.T) {
	p, o := twoShards(t)
	genuine := p.by(t, "a", "c7", time.Hour)
	parts := strings.Split(genuine, ".")
	stranger := newIssuer(t, newECDSA(t, elliptic.P256()))
	stranger.Name = "a"
	for name, token := range map[string]string{
		"text":                        "made-up",
		"nothing":                     "",
		"another signature":           parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2])),
		"other claims":                parts[0] + "." + strings.Split(p.by(t, "a", "c8", time.Hour), ".")[1] + "." + parts[2],
		"a key that no shard has":     issue(t, stranger, nil),
		"a cluster that all have":     p.by(t, "a", clusters.SystemAdmin, time.Hour),
		"a token that has expired":    p.by(t, "a", "c7", -time.Hour),
		"more than a token's length":  genuine + strings.Repeat("A", maxTokenLength),
		"another audience than a's":   issue(t, p.peers["a"].issuer, func(g *Grant) { g.Audiences = []string{"vault"} }),
		"an issuer that is not the a": issue(t, &Issuer{Name: "z", Keys: p.peers["a"].issuer.Keys}, func(g *Grant) { g.Audiences = []string{"a"} }),
	} {
		if resp, ok, err := o.AuthenticateToken(t.Context(), token); ok {
			t.Errorf("%s: it is %v, %v", name, resp.User, err)
		}
	}
	if n := p.questions(); n != 0 {
		t.Errorf("%d questions: %v", n, p.asked)
	}
}

func TestAShardVouchesForItsOwnClustersOnly(t *testing.T) {
	p, o := twoShards(t)
	p.peers["b"].world.stored[theAccount] = object("u1") // b lies that the account is there
	if _, ok, err := o.AuthenticateToken(t.Context(), p.by(t, "b", "c7", time.Hour)); ok || !strings.Contains(err.Error(), "not on shard b") {
		t.Errorf("b makes accounts of a: %t, %v", ok, err)
	}
}

// A shard may publish another one's public key, and sign with its own what seems to be signed with that.
func TestAShardThatPublishesAnothersKeyGainsNothing(t *testing.T) {
	p, _ := twoShards(t)
	p.peers["b"].world.stored[theAccount] = object("u1")
	ofA, err := p.peers["a"].issuer.Published()
	if err != nil {
		t.Fatal(err)
	}
	p.peers["b"].issuer.Name = "a"
	p.peers["b"].issuer.Audiences = []string{"a"}
	p.peers["b"].published = func(out *Published) { out.Keys = append(out.Keys, ofA.Keys...) }
	o := NewOthers(p, p.here)
	o.learn(t.Context())
	if _, ok, err := o.AuthenticateToken(t.Context(), p.by(t, "a", "c7", time.Hour)); !ok {
		t.Errorf("tokens of a are refused: %v", err)
	}
	keyA, keyB := keyOf(p.by(t, "a", "c7", time.Hour)), keyOf(p.by(t, "b", "c7", time.Hour))
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(issue(t, &Issuer{Name: "a", Keys: p.peers["b"].issuer.Keys}, func(g *Grant) { g.Audiences = []string{"a"} }), ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	for name, header := range map[string]string{
		"a's key":                    `{"alg":"ES256","kid":"` + keyA + `"}`,
		"both, its own last":         `{"alg":"ES256","kid":"` + keyA + `","kid":"` + keyB + `"}`,
		"both, a's last":             `{"alg":"ES256","kid":"` + keyB + `","kid":"` + keyA + `"}`,
		"both, a's in another case":  `{"alg":"ES256","kid":"` + keyB + `","KID":"` + keyA + `"}`,
		"both, its own in that case": `{"alg":"ES256","kid":"` + keyA + `","KID":"` + keyB + `"}`,
	} {
		token := signWith(t, p.peers["b"].key, header, payload)
		for range 2 { // what is remembered counts for no other shard
			if resp, ok, err := o.AuthenticateToken(t.Context(), token); ok {
				t.Errorf("%s: it is %v, %v", name, resp.User, err)
			}
		}
	}
}

// signWith signs with a header that no Issuer would write.
func signWith(t *testing.T, key *ecdsa.PrivateKey, header string, payload []byte) string {
	t.Helper()
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(payload)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func TestADeadAccountIsRefusedSoonAndALivingOneSeldomAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o := twoShards(t)
		token := p.by(t, "a", "c7", time.Hour)
		served := func() bool {
			_, ok, _ := o.AuthenticateToken(t.Context(), token)
			return ok
		}
		for range 100 {
			if !served() {
				t.Fatal("it is refused")
			}
		}
		if n := p.asked["a account"]; n != 1 {
			t.Errorf("%d questions for 100 requests", n)
		}
		delete(p.peers["a"].world.stored, theAccount)
		time.Sleep(goodFor + time.Millisecond)
		if served() {
			t.Errorf("it works for more than %v after its deletion", goodFor)
		}
	})
}

func TestATokenEndsWithItsSecretOnAnotherShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o := twoShards(t)
		world := p.peers["a"].world
		world.stored[theSecret] = object("s1")
		token := issue(t, p.peers["a"].issuer, func(g *Grant) {
			g.Audiences, g.Secret = []string{"a"}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bond", UID: "s1"}}
		})
		if _, ok, err := o.AuthenticateToken(t.Context(), token); !ok {
			t.Fatal(err)
		}
		delete(world.stored, theSecret)
		time.Sleep(goodFor + time.Millisecond)
		if _, ok, _ := o.AuthenticateToken(t.Context(), token); ok {
			t.Error("it works without the secret")
		}
	})
}

// A key that was stolen, and that its shard accepts no more.
func TestAKeyThatItsShardDropsIsWorthNothingSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o := twoShards(t)
		token := p.by(t, "a", "c7", time.Hour)
		if _, ok, err := o.AuthenticateToken(t.Context(), token); !ok {
			t.Fatal(err)
		}
		next, err := NewKeys(newECDSA(t, elliptic.P256()))
		if err != nil {
			t.Fatal(err)
		}
		p.peers["a"].issuer.Keys = next
		time.Sleep(goodFor + time.Millisecond)
		if _, ok, _ := o.AuthenticateToken(t.Context(), token); ok {
			t.Error("its tokens work")
		}
		time.Sleep(keysFor)
		o.learn(t.Context())
		if _, ok, err := o.AuthenticateToken(t.Context(), p.by(t, "a", "c7", time.Hour)); !ok {
			t.Errorf("tokens of the next key: %v", err)
		}
	})
}

// I11
func TestAShardThatHangsHoldsUpNobodyElsesAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o := twoShards(t)
		ofA, ofB := p.by(t, "a", "c7", time.Hour), p.by(t, "b", "c8", time.Hour)
		p.peers["a"].hangs = true
		var waiting sync.WaitGroup
		for n := range 100 {
			token := ofA
			if n%2 == 0 { // of another account, which is another question
				token = issue(t, p.peers["a"].issuer, func(g *Grant) {
					g.Audiences, g.Account.UID = []string{"a"}, types.UID(fmt.Sprint(n))
				})
			}
			waiting.Go(func() {
				began := time.Now()
				if _, ok, err := o.AuthenticateToken(t.Context(), token); ok || err == nil || time.Since(began) > patience {
					t.Errorf("%t, %v after %v", ok, err, time.Since(began))
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if _, ok, err := o.AuthenticateToken(t.Context(), ofB); !ok || time.Since(began) > 0 {
			t.Errorf("an account of the other shard waits %v (%v)", time.Since(began), err)
		}
		waiting.Wait()
	})
}

func TestAShardThatIsNotHeardIsNotAsked(t *testing.T) {
	p, o := twoShards(t)
	p.peers["a"].down = true
	if _, ok, err := o.AuthenticateToken(t.Context(), p.by(t, "a", "c7", time.Hour)); ok || !strings.Contains(err.Error(), "not heard") {
		t.Errorf("%t, %v", ok, err)
	}
	if n := p.questions(); n != 0 {
		t.Errorf("%d questions", n)
	}
}

func TestAccountsOfAShardThatIsNoMemberAnyMoreAreRefusedAtOnce(t *testing.T) {
	p, o := twoShards(t)
	token := p.by(t, "a", "c7", time.Hour)
	if _, ok, err := o.AuthenticateToken(t.Context(), token); !ok {
		t.Fatal(err)
	}
	delete(p.peers, "a")
	if _, ok, _ := o.AuthenticateToken(t.Context(), token); ok {
		t.Error("the account of a shard that was removed is known")
	}
	o.learn(t.Context())
	if n := len(o.keys.publishing(keyOf(token))); n != 0 {
		t.Errorf("its keys are remembered for %d shards", n)
	}
}

func TestAShardOfAnotherVersionIsAskedForKeysSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := twoShards(t)
		asked := 0
		p.peers["a"].published = func(out *Published) { asked++; out.Keys = nil }
		o := NewOthers(p, p.here)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		o.Run(ctx)
		if most := int(time.Minute/retryAfter) + 1; asked < 2 || asked > most {
			t.Errorf("asked %d times in a minute, want %d at the most", asked, most)
		}
		if _, ok, err := o.AuthenticateToken(t.Context(), p.by(t, "b", "c8", time.Hour)); !ok {
			t.Errorf("the other shard's accounts: %v", err)
		}
	})
}

// A logical cluster moves with its accounts. Tokens that its former shard has signed are good while the account is
// here, and that shard is not asked. Of other clusters it vouches for no account here.
func TestTokensOfBeforeAMoveAreGood(t *testing.T) {
	p, o := twoShards(t)
	p.moved = map[logicalcluster.Name]string{"c7": "a"}
	token := p.by(t, "a", "c7", time.Hour)
	if _, ok, err := o.AuthenticateToken(t.Context(), token); ok {
		t.Errorf("the account is not here: %v", err)
	}
	p, o = twoShards(t)
	p.moved = map[logicalcluster.Name]string{"c7": "a"}
	p.home["c7"] = "here"
	p.world.stored[theAccount] = object("u1")
	if resp, ok, err := o.AuthenticateToken(t.Context(), p.by(t, "a", "c7", time.Hour)); !ok || resp.User.GetName() != "system:serviceaccount:n:bot" {
		t.Errorf("the account has come with its cluster, and its token is refused: %v", err)
	}
	if len(p.asked) > 0 {
		t.Errorf("other shards were asked: %v", p.asked)
	}
	if _, ok, _ := o.AuthenticateToken(t.Context(), p.by(t, "b", "c7", time.Hour)); ok {
		t.Error("a shard vouches for an account of a cluster that it never had")
	}
}

// A third shard asks the one that a cluster has moved to about tokens of before, and that one answers for keys of the
// shards that had the cluster.
func TestTokensOfBeforeAMoveAreGoodAtAThirdShard(t *testing.T) {
	for name, tc := range map[string]struct {
		by    string // who has signed
		from  string // where the cluster was
		there bool   // the account
		want  bool
	}{
		"by its former shard":            {by: "a", from: "a", there: true, want: true},
		"and the account has gone":       {by: "a", from: "a"},
		"by a shard that never had it":   {by: "c", from: "a", there: true},
		"by the one that it is on now":   {by: "b", from: "a", there: true, want: true},
		"and it was never anywhere else": {by: "a", there: true},
	} {
		p, o := twoShards(t)
		stranger := newIssuer(t, newECDSA(t, elliptic.P256()))
		stranger.Name, stranger.Audiences = "c", []string{"c"}
		p.peers["c"] = &peer{key: newECDSA(t, elliptic.P256()), issuer: stranger, world: newWorld()}
		o.learn(t.Context())
		p.home["c7"] = "b"
		if tc.there {
			p.peers["b"].world.stored[theAccount] = object("u1")
		}
		there := &peersOf{peers: map[string]*peer{"a": p.peers["a"], "c": p.peers["c"]}, asked: map[string]int{}, moved: map[logicalcluster.Name]string{"c7": tc.from}}
		p.peers["b"].others = NewOthers(there, NewAuthenticator(p.peers["b"].issuer, p.peers["b"].world))
		p.peers["b"].others.learn(t.Context())
		resp, ok, err := o.AuthenticateToken(t.Context(), p.by(t, tc.by, "c7", time.Hour))
		if ok != tc.want || ok && resp.User.GetName() != "system:serviceaccount:n:bot" {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
}
