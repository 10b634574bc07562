package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Validate validates files. Without a server it does not check links, and runs the linter only if
// lint is set.
func Validate(ctx context.Context, o Options, files []controlfile.File, lint bool) error {
	var v controlfile.Validation
	if o.Server != nil {
		if err := o.ask(ctx, http.MethodPost, "/policies-as-code/validate", "", policycode.Request{Files: files}, &v); err != nil {
			return o.writeRefused(err)
		}
	} else {
		var err error
		if v, err = validateHere(ctx, files, lint); err != nil {
			return err
		}
	}
	rep := Report{Value: v, Issues: append(append([]lang.FileIssue{}, v.Errors...), v.Warnings...), Text: func(p *printer) { p.validation(v) }}
	bad := map[string]string{}
	for _, is := range v.Errors {
		bad[is.File] += fmt.Sprintf("%d:%d: %s\n", is.Line, is.Column, is.Message)
	}
	for _, f := range files {
		rep.Cases = append(rep.Cases, Case{Suite: "validate", Name: f.Path, File: f.Path, Failure: bad[f.Path]})
		delete(bad, f.Path)
	}
	for file, text := range bad {
		rep.Cases = append(rep.Cases, Case{Suite: "validate", Name: file, File: file, Failure: text})
	}
	if err := o.write("validate", rep); err != nil {
		return err
	}
	return findings(v.Valid)
}
