package cli

import (
	"context"
	"net/http"
	"net/url"

	"github.com/gatehouse-dev/gatehouse/internal/policycode"
)

// pulled is the result of a pull.
type pulled struct {
	Directory string   `json:"directory"`
	Files     int      `json:"files"`
	Written   []string `json:"written"`
}

// Pull writes the service's controls to files below dir. It overwrites files with other content
// only if force is set.
func Pull(ctx context.Context, o Options, dir, environment, name string, force bool) error {
	if err := o.requirePlainFormat("pull"); err != nil {
		return err
	}
	var x policycode.Export
	query := url.Values{"environment": {environment}}
	if name != "" {
		query.Set("name", name)
	}
	if err := o.ask(ctx, http.MethodGet, "/policies-as-code/files?"+query.Encode(), "", nil, &x); err != nil {
		return o.writeRefused(err)
	}
	if len(x.Files) == 0 {
		return &Failure{ExitFindings, errNothing}
	}
	written, err := save(dir, x.Files, force)
	if err != nil {
		return err
	}
	p := pulled{Directory: dir, Files: len(x.Files), Written: append([]string{}, written...)}
	return o.write("pull", Report{Value: p, Text: func(out *printer) { out.pulled(p) }})
}
