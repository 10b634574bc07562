package worker

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/gitpack"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const opUnpack = "unpack"

// unpackDeadline bounds the reading of one pack.
const unpackDeadline = 15 * time.Second

// Unpack extracts files from a git packfile in a child, because a small pack can hold
// objects of any size. Faults: those of Validate, and Invalid "evaluation_failed" with
// what is wrong with the pack or the commit.
func (p *Pool) Unpack(ctx context.Context, tenant scope.TenantID, r gitpack.Request) ([]gitpack.File, error) {
	rep, err := p.call(ctx, tenant, unpackDeadline, request{Op: opUnpack, Unpack: &r})
	if err != nil {
		return nil, err
	}
	if rep.Files == nil {
		rep.Files = []gitpack.File{}
	}
	return rep.Files, nil
}

func (c *child) unpack(req request) reply {
	if req.Unpack == nil {
		return reply{Error: "there is nothing to unpack"}
	}
	files, err := gitpack.Unpack(*req.Unpack)
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{Files: files}
}
