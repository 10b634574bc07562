package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand prints a script that completes commands and flags.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: ${enum}."`
}

// Run prints the script: `source <(gatehouse completion bash)`.
func (c *completionCommand) Run(line *kong.Context) error {
	words := map[string][]string{}
	completionWords(line.Model.Node, "", words)
	paths := slices.Sorted(maps.Keys(words))
	out := &strings.Builder{}
	switch c.Shell {
	case "bash":
		bashCompletion(out, paths, words)
	case "zsh":
		out.WriteString("#compdef gatehouse\nautoload -Uz bashcompinit && bashcompinit\n")
		bashCompletion(out, paths, words)
	case "fish":
		fishCompletion(out, paths, words)
	}
	_, err := os.Stdout.WriteString(out.String())
	return err
}

// completionWords collects, for each command by its path, the words that may follow.
func completionWords(node *kong.Node, path string, words map[string][]string) {
	for _, child := range node.Children {
		if child.Hidden || child.Type != kong.CommandNode {
			continue
		}
		words[path] = append(words[path], child.Name)
		completionWords(child, strings.TrimSpace(path+" "+child.Name), words)
	}
	for _, f := range node.Flags {
		if !f.Hidden {
			words[path] = append(words[path], "--"+f.Name)
		}
	}
}

func bashCompletion(out *strings.Builder, paths []string, words map[string][]string) {
	out.WriteString("_gatehouse() {\n\tlocal word path='' i\n\tlocal current=\"${COMP_WORDS[COMP_CWORD]}\"\n" +
		"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n\t\tword=\"${COMP_WORDS[i]}\"\n\t\t[[ $word == -* ]] || path=\"${path:+$path }$word\"\n\tdone\n\tcase \"$path\" in\n")
	// The longest path comes first: what follows a command may be an argument.
	for _, p := range slices.Backward(paths) {
		pattern := fmt.Sprintf("%q|%q*", p, p+" ")
		if p == "" {
			pattern = "''"
		}
		fmt.Fprintf(out, "\t%s) COMPREPLY=($(compgen -W %q -- \"$current\")) ;;\n", pattern, strings.Join(words[p], " "))
	}
	out.WriteString("\tesac\n}\ncomplete -o default -F _gatehouse gatehouse\n")
}

func fishCompletion(out *strings.Builder, paths []string, words map[string][]string) {
	for _, p := range paths {
		when := "__fish_use_subcommand"
		if p != "" {
			parts := strings.Fields(p)
			for i, w := range parts {
				parts[i] = "__fish_seen_subcommand_from " + w
			}
			when = strings.Join(parts, "; and ")
		}
		for _, w := range words[p] {
			if flag, ok := strings.CutPrefix(w, "--"); ok {
				fmt.Fprintf(out, "complete -c gatehouse -n %q -l %s\n", when, flag)
			} else {
				fmt.Fprintf(out, "complete -c gatehouse -n %q -a %s\n", when, w)
			}
		}
	}
}
