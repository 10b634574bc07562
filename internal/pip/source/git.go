package source

import (
	"context"
	"encoding/json"
	"errors"
	urlpath "path"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxYAML is how large a YAML file may be, in bytes: parsing one takes many times its size in
// memory.
const maxYAML = 1 << 20

// File says which file of a git repository to read.
type File struct {
	// URL is the address of the repository. Token is its credential, alone or as name:token.
	URL, Token string
	// Branch is a branch or tag; empty: the default branch.
	Branch string
	Path   string
	// Have is the commit whose file is already stored; empty: none.
	Have string
	// Largest is how large the file may be, in bytes.
	Largest int64
}

// Content is a file as it is in a commit.
type Content struct {
	Commit string
	// Unchanged is true if Commit is File.Have. Text is then empty.
	Unchanged bool
	Text      string
}

// repository checks the address of a repository and the path of its file.
func (k *checker) repository(provider string, c Config) {
	if provider != Git {
		return
	}
	if c.Git == nil {
		k.add("/configuration/git", "is required with the provider git")
		return
	}
	if c.URL != "" && !strings.HasPrefix(strings.ToLower(c.URL), "https://") {
		k.add("/configuration/url", "must be an https address: repositories are fetched over TLS alone")
	}
	if p := c.Git.Path; p == "" || p != urlpath.Clean(p) || urlpath.IsAbs(p) || p == "." || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsRune(p, 0) {
		k.add("/configuration/git/path", "must be the path of a file within the repository, such as data/people.yaml")
	}
}

// formatOf returns the configured format, or that of a git file by its name; empty: JSON.
func formatOf(c Config) string {
	if c.Format != "" || c.Git == nil {
		return c.Format
	}
	switch strings.ToLower(urlpath.Ext(c.Git.Path)) {
	case ".csv":
		return formatCSV
	case ".yaml", ".yml":
		return formatYAML
	}
	return ""
}

// readGit reads a file of a repository. The result is Unchanged if the commit is that of the last
// fetch.
func (r *run) readGit(ctx context.Context, b *builder) (Result, error) {
	if err := r.checkAlive(ctx); err != nil {
		return Result{}, err
	}
	if r.Repository == nil {
		return Result{}, failf("this server does not read repositories")
	}
	f := File{URL: r.URL, Token: r.order.Credentials.Token, Branch: r.Git.Branch, Path: r.Git.Path, Largest: MaxBytes}
	if secrets := r.order.Credentials; secrets.Username != "" {
		f.Token = secrets.Username + ":" + secrets.Password
	}
	if !r.order.Sample && r.order.Previous.Defined() {
		f.Have = r.order.State.Commit
	}
	got, err := r.Repository(ctx, f)
	switch {
	case err != nil && ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case fault.Is(err, fault.Invalid), fault.Is(err, fault.BadGateway):
		return Result{}, failf("%s", fault.Message(err))
	case err != nil:
		return Result{}, err
	case got.Unchanged:
		return Result{Unchanged: true, State: r.order.State}, nil
	}
	r.noteFull()
	r.state.Commit = got.Commit
	if err := r.reserve(ctx, uint64(len(got.Text))); err != nil {
		return Result{}, err
	}
	doc, err := r.decode(got.Text)
	if err != nil {
		return Result{}, err
	}
	if _, err := b.add(doc); err != nil {
		return Result{}, err
	}
	return r.result(b, doc)
}

// decodeYAML parses a YAML document as the equivalent JSON.
func decodeYAML(text string) (value.Value, error) {
	if len(text) > maxYAML {
		return value.Value{}, failf("the YAML file is larger than %d MiB", maxYAML>>20)
	}
	var tree yaml.Node
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		return value.Value{}, badYAML(err)
	}
	left := MaxBytes
	if !weigh(&tree, 2*maxDepth, &left) { // twice the depth: an alias counts as a level
		return value.Value{}, failf("the file is not YAML that gatehouse accepts: with its aliases it stands for more than %d MiB or %d levels", MaxBytes>>20, maxDepth)
	}
	var doc any
	if err := tree.Decode(&doc); err != nil {
		return value.Value{}, badYAML(err)
	}
	plain, err := json.Marshal(doc)
	if _, ok := errors.AsType[*json.UnsupportedTypeError](err); ok {
		return value.Value{}, failf("the file is not YAML that gatehouse accepts: the keys of a mapping must be texts")
	}
	if err != nil || len(plain) > MaxBytes {
		return value.Value{}, failf("the file is not YAML that gatehouse accepts: it stands for no JSON document of at most %d MiB", MaxBytes>>20)
	}
	return decodeJSON(string(plain))
}

// weigh subtracts the size of a node, in bytes, from left, and reports whether enough was left. It
// follows aliases, as decoding does later: a short file can name a long text many times.
func weigh(n *yaml.Node, depth int, left *int) bool {
	if *left -= len(n.Value) + 1; *left < 0 || depth < 0 {
		return false
	}
	if n.Alias != nil {
		return weigh(n.Alias, depth-1, left)
	}
	for _, c := range n.Content {
		if !weigh(c, depth-1, left) {
			return false
		}
	}
	return true
}

// yamlLine finds the line that the parser's message names.
var yamlLine = regexp.MustCompile(`line \d+`)

// badYAML says why a file is not valid YAML. If the parser's message quotes the file, badYAML keeps
// only the line number.
func badYAML(err error) error {
	why := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.ContainsAny(why, "`'\"") {
		if why = yamlLine.FindString(why); why == "" {
			return failf("the file is not YAML that gatehouse accepts")
		}
	}
	return failf("the file is not YAML that gatehouse accepts: %s", why)
}
