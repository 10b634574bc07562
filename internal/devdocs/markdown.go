package devdocs

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// markdown renders the repository's own pages as HTML. It drops HTML in them.
type markdown struct {
	// resolve returns the address of a link. If it returns false, only the link's text is kept.
	resolve func(to string) (string, bool)
	// copy is the text of the button that copies code.
	copy string
}

func (m markdown) render(source string) (template.HTML, error) {
	md := goldmark.New(
		goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(codeBlocks{m.copy}, 100))),
	)
	src := []byte(source)
	tree := md.Parser().Parse(text.NewReader(src))
	if err := m.links(tree); err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := md.Renderer().Render(&out, src, tree); err != nil {
		return "", err
	}
	// A table may be wider than the page, so it gets its own scroll bar. The tabindex lets the
	// keyboard scroll it.
	wide := strings.NewReplacer("<table>", `<div class="scroll" tabindex="0"><table>`, "</table>", "</table></div>")
	return template.HTML(wide.Replace(out.String())), nil //nolint:gosec // goldmark escapes, and drops HTML
}

// inline renders a text of one line without a paragraph around it.
func (m markdown) inline(source string) (template.HTML, error) {
	out, err := m.render(source)
	s := strings.TrimSpace(string(out))
	return template.HTML(strings.TrimSuffix(strings.TrimPrefix(s, "<p>"), "</p>")), err //nolint:gosec // as above
}

// links sets the addresses of links. It removes images, and replaces links without a target with
// their text.
func (m markdown) links(tree ast.Node) error {
	var loose, gone []ast.Node
	err := ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Image:
			gone = append(gone, n)
			return ast.WalkSkipChildren, nil
		case *ast.Link:
			to, ok := m.resolve(string(n.Destination))
			if !ok {
				loose = append(loose, n)
			}
			n.Destination = []byte(to)
		}
		return ast.WalkContinue, nil
	})
	for _, n := range gone {
		n.Parent().RemoveChild(n.Parent(), n)
	}
	for _, n := range loose {
		parent := n.Parent()
		for c := n.FirstChild(); c != nil; c = n.FirstChild() {
			parent.InsertBefore(parent, n, c)
		}
		parent.RemoveChild(parent, n)
	}
	return err
}

// codeBlocks renders code with a button that copies it.
type codeBlocks struct{ copy string }

// RegisterFuncs implements renderer.NodeRenderer.
func (c codeBlocks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, c.block)
	r.Register(ast.KindCodeBlock, c.block)
}

func (c codeBlocks) block(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	code := strings.TrimSuffix(string(n.Lines().Value(source)), "\n")
	_, err := fmt.Fprintf(w, "<div class=\"code\"><pre tabindex=\"0\"><code>%s</code></pre><button type=\"button\" class=\"copy\">%s</button></div>\n", html.EscapeString(code), html.EscapeString(c.copy))
	return ast.WalkSkipChildren, err
}
