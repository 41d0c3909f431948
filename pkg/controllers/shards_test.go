package controllers

import (
	"fmt"
	"slices"
	"testing"
)

func TestContactTellsOfChanges(t *testing.T) {
	var c Contact
	var told []string
	remove := c.Follow(func(shard string, heard bool) { told = append(told, fmt.Sprint(shard, heard)) })
	c.Set("eu1", false) // as it was
	c.Set("eu1", true)
	c.Set("eu1", true)
	c.Set("us1", true)
	if !c.Hears("eu1") || c.Hears("nobody") {
		t.Error("eu1 is not heard, or somebody is who does not exist")
	}
	if c.Misses("eu1") || c.Misses("nobody") {
		t.Error("one that is heard is missed, or one of which nothing is known")
	}
	c.Set("eu1", false)
	if c.Set("us2", false); !c.Misses("eu1") || !c.Misses("us2") {
		t.Error("one that is not heard, any more or at all, is not missed")
	}
	remove()
	c.Set("us1", false)
	if want := []string{"eu1true", "us1true", "eu1false"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}

func TestAShardIsNotSteadyWhileItsWatchesAreBroken(t *testing.T) {
	var c Contact
	ended := 0
	remove := c.FollowSteady(func() { ended++ })
	c.Set("eu1", true)
	c.Waver("eu1")
	if c.Steady("eu1") || !c.Hears("eu1") {
		t.Error("a shard whose watch has just broken is steady, or not heard")
	}
	c.Set("eu1", true)
	if !c.Steady("eu1") || ended != 1 {
		t.Errorf("its watch is open again: steady %t, told %d times", c.Steady("eu1"), ended)
	}
	c.Waver("eu1")
	c.Set("eu1", false)
	if c.Steady("eu1") || ended != 2 {
		t.Errorf("it is gone: steady %t, told %d times", c.Steady("eu1"), ended)
	}
	remove()
	c.Waver("eu1")
	if c.Set("eu1", true); ended != 2 || !c.Steady("eu1") {
		t.Errorf("told %d times, steady %t", ended, c.Steady("eu1"))
	}
}
