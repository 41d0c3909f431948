package view

import (
	"fmt"
	"strings"

	"github.com/regent-project/regent/pkg/server/status"
)

// problems writes what is wrong and what to do about it.
func (p *page) problems(problems []status.Problem) {
	if len(problems) == 0 {
		p.line("No problems.")
		return
	}
	p.line("Problems: %s", tally(problems))
	for _, problem := range problems {
		p.line("")
		p.problem(problem)
	}
}

func (p *page) problem(problem status.Problem) {
	word := string(problem.Severity)
	switch problem.Severity {
	case status.Critical:
		word = p.bad(word)
	case status.Warning:
		word = p.warning(word)
	}
	head := fmt.Sprintf("%s: %s", word, problem.Kind)
	if about := About(problem); about != "" {
		head += ", " + about
	}
	p.line("%s", head)
	p.wrap("  ", problem.What)
	for _, line := range strings.Split(problem.Remedy, "\n") {
		if strings.HasPrefix(line, "$ ") {
			p.line("      %s", line)
			continue
		}
		p.wrap("    ", line)
	}
}

// About says what a problem is about: a shard, or a replica of it.
func About(problem status.Problem) string {
	if problem.Shard != "" && problem.Replica != "" {
		return problem.Shard + "/" + problem.Replica
	}
	return problem.Shard + problem.Replica
}

// tally counts problems by severity.
func tally(problems []status.Problem) string {
	var words []string
	for _, severity := range []status.Severity{status.Critical, status.Warning, status.Notice} {
		n := 0
		for _, p := range problems {
			if p.Severity == severity {
				n++
			}
		}
		word := string(severity)
		if n > 1 && severity != status.Critical {
			word += "s"
		}
		if n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, word))
		}
	}
	return strings.Join(words, ", ")
}
