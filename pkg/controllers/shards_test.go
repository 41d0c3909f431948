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
	if !c.Heard("eu1") || c.Heard("nobody") {
		t.Error("eu1 is not heard, or somebody is who does not exist")
	}
	c.Set("eu1", false)
	remove()
	c.Set("us1", false)
	if want := []string{"eu1true", "us1true", "eu1false"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}
