package ui

import (
	"crypto/sha256"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pairs are the colours of texts, and the grounds on which style.css has them.
var pairs = []struct {
	grounds []string
	texts   []string
}{
	{[]string{"ground", "card", "well-of"}, []string{"ink", "dim", "lead", "bad", "warn", "well"}},
	{[]string{"past", "on"}, []string{"ink"}}, // the timeline
	{[]string{"lead"}, []string{"card"}},      // the button that says yes
	{[]string{"lead-wash"}, []string{"ink", "lead"}},
	{[]string{"well-wash"}, []string{"ink", "well", "dim"}},
	{[]string{"warn-wash"}, []string{"ink", "warn", "dim"}},
	{[]string{"bad-wash"}, []string{"ink", "bad", "dim"}},
}

// least is what WCAG 2.2 asks of texts (AA).
const least = 4.5

// colours returns the variables of style.css, for light (0) and dark (1).
func colours(t *testing.T, css string) map[string][2]float64 {
	t.Helper()
	out := map[string][2]float64{}
	for _, match := range regexp.MustCompile(`--([a-z-]+): light-dark\(#([0-9a-f]+), #([0-9a-f]+)\)`).FindAllStringSubmatch(css, -1) {
		out[match[1]] = [2]float64{luminance(t, match[2]), luminance(t, match[3])}
	}
	return out
}

// luminance is WCAG's relative luminance of a colour.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	sum := 0.0
	for n, weight := range []float64{0.2126, 0.7152, 0.0722} {
		value, err := strconv.ParseUint(hex[2*n:2*n+2], 16, 8)
		if err != nil {
			t.Fatalf("#%s is no colour: %v", hex, err)
		}
		c := float64(value) / 255
		if c <= 0.04045 {
			sum += weight * c / 12.92
		} else {
			sum += weight * math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return sum
}

func TestTextsCanBeRead(t *testing.T) {
	css, err := assets.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	known, checked := colours(t, string(css)), map[string]bool{}
	for _, p := range pairs {
		for _, ground := range p.grounds {
			for _, text := range p.texts {
				for n, scheme := range []string{"light", "dark"} {
					a, b := known[ground][n], known[text][n]
					if a == 0 && b == 0 {
						t.Fatalf("style.css has no --%s or no --%s", ground, text)
					}
					ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05)
					if ratio < least {
						t.Errorf("%s on %s, %s: contrast %.2f, want %.1f", text, ground, scheme, ratio, least)
					}
				}
				checked[text], checked[ground] = true, true
			}
		}
	}
	// A new colour must be in the table: only lines, and areas without texts, need none.
	bare := []string{"line", "detect", "break", "acquire"}
	for name := range known {
		if !checked[name] && !slices.Contains(bare, name) {
			t.Errorf("--%s is in no pair of this test", name)
		}
	}
	for _, rule := range regexp.MustCompile(`[^{}]*\{[^}]*opacity[^}]*\}`).FindAllString(string(css), -1) {
		t.Errorf("opacity takes contrast away from texts: %s", strings.TrimSpace(rule))
	}
	for _, rule := range regexp.MustCompile(`(?m)^[^-\n]*[ {;](?:color|background|fill): *#[^;]*`).FindAllString(string(css), -1) {
		t.Errorf("a colour that is no variable is not checked: %s", rule)
	}
}

// The vendored files are those of the packages (docs/UI.md).
func TestTheVendoredFilesAreAsPublished(t *testing.T) {
	for name, want := range map[string]string{
		"preact.js": "225d7a773766e6fb2cfcc45274fe41d2059f5782f3f2c4569aa5132a2d3a2902",
		"htm.js":    "ab33dd3f38059b9be4d5f5350128eefb2356639c4e0bbe9d9e8b3ba75847e9e4",
	} {
		content, err := assets.ReadFile("assets/vendor/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(content)); got != want {
			t.Errorf("vendor/%s has SHA-256 %s, want %s: was it edited, or updated without docs/UI.md and this test?", name, got, want)
		}
	}
}
