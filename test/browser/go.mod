module github.com/regent-project/regent/test/browser

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.2
	github.com/chromedp/chromedp v0.23.0
)

require github.com/go-json-experiment/json v1.27.2 // indirect
