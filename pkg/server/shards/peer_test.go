package shards

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

// Servers end watches all the time. Only a shard whose watches stay away is not heard.
func TestAShardIsHeardUntilItsWatchesAreAwayForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{
			member: Member{Name: "eu1"}, transport: &failover{},
			workspaces:      controllertest.Informer(t, controllertest.NewSource[*tenancyv1alpha1.Workspace](), nil),
			logicalClusters: controllertest.Informer(t, controllertest.NewSource[*corev1alpha1.LogicalCluster](), nil),
			shards:          controllertest.Informer(t, controllertest.NewSource[*corev1alpha1.Shard](), nil),
		}
		contact := &controllers.Contact{}
		var news []string
		defer contact.Follow(func(shard string, heard bool) { news = append(news, fmt.Sprint(shard, heard)) })()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.tellContact(ctx, contact) })
		defer running.Wait()
		defer cancel()

		open := &p.open
		for _, step := range []struct {
			what   string
			watch  int // opened, or broken
			lasts  time.Duration
			expect []string
		}{
			{"nothing is open", 0, time.Hour, nil},
			{"two of three are open", 2, time.Hour, nil},
			{"all are open", 1, 0, []string{"eu1true"}},
			{"one is begun anew", -1, unheardAfter - time.Millisecond, nil},
			{"it is open again", 1, time.Hour, nil},
			{"another is begun anew", -1, unheardAfter - time.Millisecond, nil},
			{"that is open again", 1, time.Millisecond, nil},
			{"one is away", -1, unheardAfter + time.Millisecond, []string{"eu1false"}},
			{"all are away", -2, time.Hour, nil},
			{"all are back", 3, 0, []string{"eu1true"}},
		} {
			news = nil
			if step.watch != 0 {
				open.count(step.watch)
			}
			time.Sleep(step.lasts)
			synctest.Wait()
			if !slices.Equal(news, step.expect) {
				t.Errorf("%s: told %v, want %v", step.what, news, step.expect)
			}
		}
	})
}

// A shard that answers with anything but a list is as one that does not answer.
func TestAShardThatSaysNonsenseIsNotHeard(t *testing.T) {
	i := newInstallation(t)
	eu1 := i.authority(shardNamed("eu1"))
	for name, body := range map[string]string{
		"no JSON":              `<html>hello</html>`,
		"half a list":          `{"kind":"ShardList","apiVersion":"core.kcp.io/v1alpha1","items":[{"metadata":{"na`,
		"another kind":         `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"x"}}]}`,
		"a status":             `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`,
		"items of other types": `{"kind":"WorkspaceList","apiVersion":"tenancy.kcp.io/v1alpha1","items":[1,"two",[]]}`,
		"nothing":              ``,
	} {
		t.Run(name, func(t *testing.T) {
			there := i.serve(eu1, answering(200, body))
			p, err := newPeer("us1", NewCaller(i.keys("us1")), Member{Name: "eu1", URLs: []string{there.url}})
			if err != nil {
				t.Fatal(err)
			}
			shards := controllers.NewShards("root", nil)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { p.run(ctx, shards) })
			for deadline := time.Now().Add(20 * time.Second); there.requests.Load() < 9; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("it was asked only %d times", there.requests.Load())
				}
			}
			if shards.Contact.Hears("eu1") {
				t.Error("it is heard")
			}
			if got, _ := shards.Workspaces.Page("eu1", clusters.Key{}, 10); len(got) > 0 {
				t.Errorf("it has shown %v", got)
			}
			cancel()
			running.Wait()
		})
	}
}
