package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

const errorsIntro = `# Errors

What Regent itself answers with when it refuses or cannot do something, as the code says it. An answer is a Status, as Kubernetes' are: programs decide by its
code and its reason, and people read its message. Three dots stand for a name, a number or another error.

**Not here:** what the libraries of Kubernetes answer, which is the same in each Kubernetes API server (an object that does not exist, 404; a conflict of
resourceVersions, 409; an object that is not valid, 422; a right that RBAC does not give, 403; too many requests of a tenant, 429); messages that are wholly another error's; and what is logged
and not answered. What commands say, and their exit codes, are in [CLI.md](../CLI.md).

`

const fieldsIntro = `## Fields of objects

These messages follow the name of a field. The code is 422 (` + "`Invalid`" + `), or 403 for a field that only the shard's controllers may write
([OPERATIONS.md](../OPERATIONS.md#what-only-the-controllers-write)). Correct the field.

| message | of |
|---|---|
`

const valuesIntro = `## In Go

Errors that programs compare with ` + "`errors.Is`" + `. ` + "`fence.IsFenced`" + ` tells a 412 of fencing from other errors.

| error | means |
|---|---|
`

// remedies say what to do about a code. Each code that is answered with needs one.
var remedies = map[int]string{
	http.StatusBadRequest:                  "The request itself is wrong. Correct it; the same request will be refused again.",
	http.StatusUnauthorized:                "Nobody knows these credentials. Renew them ([ACCESS.md](../ACCESS.md#who-users-are)).",
	http.StatusForbidden:                   "The user may not do this, or nobody may in this state. Ask for the right ([ACCESS.md](../ACCESS.md#who-may-do-what)), or do what the message says.",
	http.StatusNotFound:                    "There is no such thing, or the user may not know of it.",
	http.StatusMethodNotAllowed:            "There is such a path, and not this verb for it.",
	http.StatusConflict:                    "Something changed meanwhile. Read it again, then decide again.",
	http.StatusGone:                        "What was asked for is too old. List again, then watch from there. client-go does so by itself.",
	http.StatusPreconditionFailed:          "The term is over to which the write belongs. It was not made, and never will be: stop the work of that term ([FENCING.md](../FENCING.md)).",
	http.StatusRequestEntityTooLarge:       "Send less.",
	http.StatusRequestURITooLong:           "Ask for less at once, or with shorter selectors.",
	http.StatusMisdirectedRequest:          "The cluster is on another shard. Ask a front, or the shard that the message names ([SHARDS.md](../SHARDS.md)).",
	http.StatusTooManyRequests:             "Too much at once. Try again after the seconds in `Retry-After`; client-go does so by itself ([TENANCY.md](../TENANCY.md#fairness)).",
	http.StatusRequestHeaderFieldsTooLarge: "Send fewer or shorter headers.",
	http.StatusInternalServerError:         "Regent, or etcd's data, is not as it must be. The log of the replica has more.",
	http.StatusServiceUnavailable:          "Not now. Try again after the seconds in `Retry-After`; if it lasts, `regent status` says what is wrong.",
	http.StatusGatewayTimeout:              "There was no answer in time. A write **may have been made**: read the object before you try again.",
}

// maker is a function that makes an answer: with which code and reason, and which argument is its message.
type maker struct {
	code    int
	reason  string
	message int
	text    string // around the message, if there is any
}

var makers = map[string]maker{
	"apierrors.NewBadRequest":                 {http.StatusBadRequest, "BadRequest", 0, ""},
	"apierrors.NewUnauthorized":               {http.StatusUnauthorized, "Unauthorized", 0, ""},
	"apierrors.NewForbidden":                  {http.StatusForbidden, "Forbidden", 2, "... is forbidden: %s"},
	"admission.NewForbidden":                  {http.StatusForbidden, "Forbidden", 1, "... is forbidden: %s"},
	"apierrors.NewMethodNotSupported":         {http.StatusMethodNotAllowed, "MethodNotAllowed", 1, "%s is not supported on resources of kind ..."},
	"apierrors.NewConflict":                   {http.StatusConflict, "Conflict", 2, "Operation cannot be fulfilled on ...: %s"},
	"apierrors.NewResourceExpired":            {http.StatusGone, "Expired", 0, ""},
	"apierrors.NewRequestEntityTooLargeError": {http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", 0, "Request entity is too large: %s"},
	"apierrors.NewTooManyRequests":            {http.StatusTooManyRequests, "TooManyRequests", 0, ""},
	"apierrors.NewInternalError":              {http.StatusInternalServerError, "InternalError", 0, "Internal error occurred: %s"},
	"apierrors.NewServiceUnavailable":         {http.StatusServiceUnavailable, "ServiceUnavailable", 0, ""},
	"apierrors.NewTimeoutError":               {http.StatusGatewayTimeout, "Timeout", 0, "Timeout: %s"},
	"NewUnavailable":                          {http.StatusServiceUnavailable, "ServiceUnavailable", 0, ""},
	"routing.NewUnavailable":                  {http.StatusServiceUnavailable, "ServiceUnavailable", 0, ""},
	"s.refuse":                                {http.StatusTooManyRequests, "TooManyRequests", 2, ""}, // of watches
	"fence.NewRefusal":                        {http.StatusPreconditionFailed, "LeaderFenced", 0, ""},
	"field.Invalid":                           {0, "", 2, ""},
	"field.Forbidden":                         {0, "", 1, ""},
	"field.Required":                          {0, "", 1, ""},
}

// codes are the names of http's codes in literals.
var codes = map[string]int{
	"StatusGatewayTimeout": http.StatusGatewayTimeout, "StatusMisdirectedRequest": http.StatusMisdirectedRequest, "StatusConflict": http.StatusConflict,
	"StatusNotFound": http.StatusNotFound, "StatusRequestURITooLong": http.StatusRequestURITooLong,
	"StatusRequestHeaderFieldsTooLarge": http.StatusRequestHeaderFieldsTooLarge,
}

// answer is an error that a client can get.
type answer struct {
	code            int // 0: of a field
	reason, message string
	by              string // the package
}

func errorsPage(code *source, _ string) (string, error) {
	var page strings.Builder
	page.WriteString(generated + errorsIntro)
	last := 0
	for _, a := range code.answers() {
		if a.code != last {
			title, remedy := fmt.Sprintf("%d `%s`", a.code, a.reason), remedies[a.code]
			if a.code == 0 {
				page.WriteString("\n" + fieldsIntro)
			} else if remedy == "" {
				return "", fmt.Errorf("%s is answered with %d: say in test/tools/reference/errors.go what to do about it", a.by, a.code)
			} else {
				fmt.Fprintf(&page, "\n## %s\n\n%s\n\n| message | of |\n|---|---|\n", title, remedy)
			}
			last = a.code
		}
		fmt.Fprintf(&page, "| %s | %s |\n", cell(a.message), a.by)
	}
	page.WriteString("\n" + valuesIntro)
	for _, value := range code.errorValues() {
		page.WriteString(value)
	}
	return strings.Replace(page.String(), "\n\n\n", "\n\n", 1), nil
}

// answers returns all answers, by their codes; those of fields are the last.
func (s *source) answers() (all []answer) {
	for _, p := range s.packages {
		if !strings.HasPrefix(p.path, "pkg/server") || strings.HasPrefix(p.path, "pkg/server/options") {
			continue
		}
		p.each(func(n ast.Node) {
			if f, ok := n.(*ast.FuncDecl); ok && f.Body != nil {
				all = append(all, p.answersIn(f)...)
			}
		})
	}
	slices.SortFunc(all, func(a, b answer) int {
		return cmp.Or(cmp.Compare((a.code+999)%1000, (b.code+999)%1000), cmp.Compare(a.by, b.by), cmp.Compare(a.message, b.message))
	})
	return slices.Compact(all)
}

// answersIn returns the answers that a function makes.
func (p *goPackage) answersIn(f *ast.FuncDecl) (answers []answer) {
	add := func(m maker, message ast.Expr) {
		for _, text := range p.patterns(f, message) {
			if m.text != "" {
				text = fmt.Sprintf(m.text, text)
			}
			answers = append(answers, answer{m.code, m.reason, text, strings.TrimPrefix(p.path, "pkg/")})
		}
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			name, args := called(n), n.Args
			if m, ok := makers[name]; ok && m.message < len(args) {
				add(m, args[m.message])
			} else if name == "newStatus" && codes[selected(args[0], "http")] != 0 {
				add(maker{code: codes[selected(args[0], "http")], reason: strings.TrimPrefix(selected(args[1], "metav1"), "StatusReason")}, args[2])
			} else if name == "refuse" && len(args) == 4 && codes[selected(args[2], "http")] != 0 {
				add(maker{code: codes[selected(args[2], "http")], reason: "Unknown"}, args[3])
			}
		case *ast.CompositeLit:
			if code := codes[selected(field(n, "Code"), "http")]; code != 0 && selected(n.Type, "metav1") == "Status" {
				reason, err := p.text(field(n, "Reason"))
				if err != nil {
					reason = strings.TrimPrefix(selected(field(n, "Reason"), "metav1"), "StatusReason")
				}
				add(maker{code: code, reason: reason}, field(n, "Message"))
			}
		}
		return true
	})
	return answers
}

// called returns the name of a function that is called, with its package.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
	}
	return ""
}

var (
	verb  = regexp.MustCompile(`%[-+# 0]*[0-9.]*[a-zA-Z]`)
	words = regexp.MustCompile(`[a-z]{3}`)
)

// patterns returns what a message can be. There is none for one that has no words of its own. A variable is all that
// its function assigns to it.
func (p *goPackage) patterns(f *ast.FuncDecl, message ast.Expr) (out []string) {
	texts := []string{p.pattern(message)}
	if name, ok := message.(*ast.Ident); ok && texts[0] == "..." {
		texts = nil
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if to, ok := n.(*ast.AssignStmt); ok {
				for i, left := range to.Lhs {
					if id, ok := left.(*ast.Ident); ok && id.Name == name.Name && i < len(to.Rhs) {
						texts = append(texts, p.pattern(to.Rhs[i]))
					}
				}
			}
			return true
		})
	}
	for _, text := range texts {
		if words.MatchString(text) {
			out = append(out, text)
		}
	}
	return out
}

// pattern returns a text with dots for what varies.
func (p *goPackage) pattern(e ast.Expr) string {
	if text, err := p.text(e); err == nil {
		return text
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return p.pattern(e.X) + p.pattern(e.Y)
		}
	case *ast.CallExpr:
		switch called(e) {
		case "fmt.Sprintf", "fmt.Errorf":
			return strings.ReplaceAll(verb.ReplaceAllString(p.pattern(e.Args[0]), "..."), "%%", "%")
		case "errors.New":
			return p.pattern(e.Args[0])
		}
	}
	return "..."
}

// ofPrograms are the packages that programs import.
var ofPrograms = []string{"pkg/clusters", "pkg/election", "pkg/election/control", "pkg/election/fence"}

// errorValues returns a row for each error that programs can compare with, with its comment.
func (s *source) errorValues() (rows []string) {
	for _, p := range s.packages {
		if !slices.Contains(ofPrograms, p.path) {
			continue
		}
		p.each(func(n ast.Node) {
			declared, ok := n.(*ast.GenDecl)
			if !ok || declared.Tok != token.VAR {
				return
			}
			for _, spec := range declared.Specs {
				value := spec.(*ast.ValueSpec) //nolint:errcheck,forcetypeassert // it is one in a declaration of variables
				comment := value.Doc
				if comment == nil {
					comment = declared.Doc
				}
				if name := value.Names[0].Name; strings.HasPrefix(name, "Err") {
					rows = append(rows, fmt.Sprintf("| `%s.%s` | %s |\n", p.path[strings.LastIndex(p.path, "/")+1:], name, cell(strings.ReplaceAll(strings.TrimSpace(comment.Text()), "\n", " "))))
				}
			}
		})
	}
	return rows
}
