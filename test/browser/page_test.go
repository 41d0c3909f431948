package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a tab that shows the page.
type tab struct {
	*testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string
}

// open opens the page of the shard that runs, and waits until it shows who leads.
func open(t *testing.T) *tab {
	t.Helper()
	p := openAt(t, served.url)
	p.until("the page shows who leads and who follows", `document.querySelectorAll('.leader.replica').length === 1 && document.querySelectorAll('.standbys .follows').length === 1`)
	return p
}

// openAt opens a page in a new browser. What the browser complains of fails the test in the end.
func openAt(t *testing.T, url string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium()), chromedp.WindowSize(1200, 900), chromedp.UserDataDir(t.TempDir()))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // the sandbox refuses to run as root
	}
	browser, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	p := &tab{T: t}
	t.Cleanup(p.judge)
	p.ctx, cancel = chromedp.NewContext(browser, chromedp.WithListener(p.hear))
	t.Cleanup(cancel)
	// the browser lives as long as this context
	if err := chromedp.Do(p.ctx, command(log.Enable, cdp.Empty{}), command(runtime.Enable, cdp.Empty{})); err != nil {
		t.Fatalf("the browser does not start: %v", err)
	}
	p.do("open the page", chromedp.Navigate(url))
	return p
}

// hear takes what the browser complains of. Requests to the API may fail while replicas are killed: the page says so
// itself.
func (p *tab) hear(event any) {
	fault := ""
	switch e := event.(type) {
	case *log.EventEntryAdded:
		ofAPI := e.Entry.Source == log.EntrySourceNetwork && !strings.Contains(e.Entry.URL, "/ui/")
		if !ofAPI && (e.Entry.Level == log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity || e.Entry.Source == log.EntrySourceViolation) {
			fault = fmt.Sprintf("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		fault = e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			fault += ": " + thrown.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			fault = "console: " + string(e.Type)
			for _, arg := range e.Args {
				fault += " " + string(arg.Value) + arg.Description
			}
		}
	}
	if fault != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults = append(p.faults, fault)
	}
}

func (p *tab) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.faults...)
}

func (p *tab) judge() {
	for _, fault := range p.complaints() {
		p.Errorf("the browser complains: %s", fault)
	}
}

type step = chromedp.Action[chromedp.Void]

// command is a command of the browser's protocol of which the answer says nothing.
func command[P, R any](c cdp.Command[P, R], params P) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// evaluate runs a script in the page.
func evaluate(script string) step { return chromedp.Evaluate[chromedp.Void](script) }

func (p *tab) do(what string, steps ...step) {
	p.Helper()
	get(p, what, chromedp.Steps(steps...))
}

func get[T any](p *tab, what string, action chromedp.Action[T]) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	got, err := chromedp.Run(ctx, action)
	if err != nil {
		p.Fatalf("cannot %s: %v", what, err)
	}
	return got
}

// value evaluates an expression in the page.
func value[T any](p *tab, expression string) T {
	p.Helper()
	return get(p, "evaluate "+expression, chromedp.Evaluate[T](expression))
}

func (p *tab) until(what, expression string) {
	p.Helper()
	for end := time.Now().Add(patience); !value[bool](p, "!!("+expression+")"); <-time.After(30 * time.Millisecond) {
		if time.Now().After(end) {
			p.screenshot("failed")
			p.Fatalf("in vain for %v: %s. The page says:\n%s", patience, what, value[string](p, "document.body.innerText"))
		}
	}
}

// press sends keys to what has the focus.
func (p *tab) press(keys ...string) {
	p.Helper()
	for _, key := range keys {
		p.do("press a key", chromedp.KeyEvent(key))
	}
}

// focused is what has the focus: what it says.
func (p *tab) focused() string {
	p.Helper()
	return value[string](p, `document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || document.activeElement.tagName`)
}

// click clicks on the button that says so.
func (p *tab) click(says string) {
	p.Helper()
	p.until("there is a button "+says, fmt.Sprintf(`[...document.querySelectorAll('button, .step')].some(b => b.innerText.startsWith(%q))`, says))
	p.do("click on "+says, evaluate(fmt.Sprintf(`[...document.querySelectorAll('button, .step')].find(b => b.innerText.startsWith(%q)).click()`, says)))
}

// show changes how wide the page is, and whether it is dark.
func (p *tab) show(width int64, scheme string) {
	p.Helper()
	p.do("resize", command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1, Mobile: width < 600}),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
}

// screenshot writes what the page looks like, the whole of it.
func (p *tab) screenshot(name string) {
	p.Helper()
	whole := true
	shot := get(p, "take a screenshot", func(ctx context.Context, t *chromedp.Target) (page.CaptureScreenshotResult, error) {
		return cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &whole})
	})
	file := filepath.Join(*screenshots, strings.ReplaceAll(p.Name(), "/", "-")+"-"+name+".png")
	if err := os.WriteFile(file, shot.Data, 0o644); err != nil {
		p.Error(err)
	}
}
