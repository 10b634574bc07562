package resource

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const columns = `id, name, type, environment, path, methods, original_host, url, attributes, description, auto_discovered,
	resource_kind, data_classification, compliance_tags, audit_level, sla_tier, data_residency, owner_team, owner_email,
	business_context, ai_provider, ai_model_family, mcp_protocol_version, agent_capabilities, pii_categories, egress_destinations,
	classification_source, classification_confidence, last_classified_at, tags, path_matching, version, created_at, updated_at`

func get(ctx context.Context, tx *db.Tx, id int64) (Resource, error) {
	return db.One[Resource](ctx, tx, `SELECT `+columns+` FROM resources WHERE id = $1`, id)
}

// listCondition returns the condition of a list, made only of the filters that are set. With
// conditions such as "or not set", neither backend would use an index.
func listCondition(env scope.Env, f Filter) (where string, args []any) {
	var conditions []string
	add := func(column, v string) {
		if v != "" {
			args = append(args, v)
			conditions = append(conditions, column+" = $"+strconv.Itoa(len(args)))
		}
	}
	add("environment", string(env))
	add("type", f.Type)
	if len(conditions) > 0 {
		where = " WHERE " + strings.Join(conditions, " AND ")
	}
	return where, args
}

// list finds the page by ids first, so that a late page does not read the rows before it.
func list(ctx context.Context, tx *db.Tx, env scope.Env, f Filter) ([]Resource, error) {
	where, args := listCondition(env, f)
	n := len(args)
	return db.All[Resource](ctx, tx, `SELECT `+columns+` FROM resources WHERE id IN (SELECT id FROM resources`+where+
		` ORDER BY id LIMIT $`+strconv.Itoa(n+1)+` OFFSET $`+strconv.Itoa(n+2)+`) ORDER BY id`, append(args, f.Limit, f.Skip)...)
}

func count(ctx context.Context, tx *db.Tx, env scope.Env, f Filter) (int64, error) {
	where, args := listCondition(env, f)
	return db.One[int64](ctx, tx, `SELECT count(*) FROM resources`+where, args...)
}

func all(ctx context.Context, tx *db.Tx, env scope.Env) ([]Resource, error) {
	return db.All[Resource](ctx, tx, `SELECT `+columns+` FROM resources WHERE environment = $1 ORDER BY id`, string(env))
}

func insert(ctx context.Context, tx *db.Tx, r Resource) (Resource, error) {
	return db.One[Resource](ctx, tx, `INSERT INTO resources (name, type, environment, path, methods, original_host, url,
			attributes, description, auto_discovered, resource_kind, data_classification, compliance_tags, audit_level,
			sla_tier, data_residency, owner_team, owner_email, business_context, ai_provider, ai_model_family,
			mcp_protocol_version, agent_capabilities, pii_categories, egress_destinations, classification_source,
			classification_confidence, last_classified_at, tags, path_matching, version, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
			$23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33)
		RETURNING `+columns, append(values(r), r.CreatedAt, r.UpdatedAt)...)
}

func update(ctx context.Context, tx *db.Tx, r Resource) (Resource, error) {
	return db.One[Resource](ctx, tx, `UPDATE resources SET name = $1, type = $2, environment = $3, path = $4, methods = $5,
			original_host = $6, url = $7, attributes = $8, description = $9, auto_discovered = $10, resource_kind = $11,
			data_classification = $12, compliance_tags = $13, audit_level = $14, sla_tier = $15, data_residency = $16,
			owner_team = $17, owner_email = $18, business_context = $19, ai_provider = $20, ai_model_family = $21,
			mcp_protocol_version = $22, agent_capabilities = $23, pii_categories = $24, egress_destinations = $25,
			classification_source = $26, classification_confidence = $27, last_classified_at = $28, tags = $29,
			path_matching = $30, version = $31, updated_at = $32
		WHERE id = $33 RETURNING `+columns, append(values(r), r.UpdatedAt, r.ID)...)
}

// values are the columns from name to version, in the order of the statements above.
func values(r Resource) []any {
	return []any{
		r.Name, r.Type, string(r.Environment), r.Path, r.Methods, r.OriginalHost, r.URL, r.Attributes, r.Description,
		r.AutoDiscovered, r.Kind, r.DataClassification, r.ComplianceTags, r.AuditLevel, r.SLATier, r.DataResidency,
		r.OwnerTeam, r.OwnerEmail, r.BusinessContext, r.AIProvider, r.AIModelFamily, r.MCPProtocolVersion,
		r.AgentCapabilities, r.PIICategories, r.EgressDestinations, r.Source, r.Confidence, r.LastClassifiedAt,
		r.Classification.Tags, r.PathMatching, r.Version,
	}
}

func remove(ctx context.Context, tx *db.Tx, id int64) error {
	return tx.Do(ctx, `DELETE FROM resources WHERE id = $1`, id)
}

// selectSame is the oldest resource of env with the same type, name and path.
func selectSame(ctx context.Context, tx *db.Tx, env scope.Env, r Resource) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT id FROM resources WHERE environment = $1 AND type = $2 AND name = $3 AND path = $4
		ORDER BY id LIMIT 1`, string(env), r.Type, r.Name, r.Path)
}

// findAlike finds other resources of r's environment with the same type, host and path.
// same has the same methods. overlapping shares some of them, so that it would not be clear
// which resource a request is for. A resource with methods and one for every method do not
// overlap, because the first is more specific. 0: there is none.
func findAlike(ctx context.Context, tx *db.Tx, r Resource) (same, overlapping int64, err error) {
	bare := strings.TrimSuffix(r.Path, "/")
	list, err := db.All[Resource](ctx, tx, `SELECT `+columns+` FROM resources
		WHERE environment = $1 AND path IN ($2, $3) AND type = $4 AND id <> $5 ORDER BY id`, string(r.Environment), bare, bare+"/", r.Type, r.ID)
	if err != nil {
		return 0, 0, err
	}
	for _, o := range list {
		switch {
		case o.host() != r.host():
		case slices.Equal(o.Methods, r.Methods):
			return o.ID, 0, nil
		case overlapping == 0 && slices.ContainsFunc(r.Methods, func(m string) bool { return slices.Contains(o.Methods, m) }):
			overlapping = o.ID
		}
	}
	return 0, overlapping, nil
}

// FindByName returns the ids of the resources of env with this name, type and path; an
// empty one matches all. It returns at most two, because more than one is ambiguous.
func FindByName(ctx context.Context, tx *db.Tx, env scope.Env, name, typ, path string) ([]int64, error) {
	return db.All[int64](ctx, tx, `SELECT id FROM resources WHERE environment = $1 AND ($2 = '' OR name = $2)
		AND ($3 = '' OR type = $3) AND ($4 = '' OR path = $4) ORDER BY id LIMIT 2`, string(env), name, typ, path)
}
