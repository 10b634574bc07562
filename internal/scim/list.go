package scim

import (
	"context"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scim/document"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// batch is how many people are read at once while a filter is applied.
const batch = 500

// Query is a request for a list.
type Query struct {
	// Filter is a filter as text; empty for none.
	Filter string
	// Start is the first result, from 1; Count is how many are wanted, nil for the default.
	Start int
	Count *int
	// Select are the attributes that are wanted.
	Select document.Selection
}

// Page is a page of a list, in the order in which the resources were added.
type Page struct {
	Resources []Resource
	Total     int64
	Start     int
}

// bounds are the first and the number of results, within our bounds.
func (q Query) bounds() (skip, count int) {
	count = defaultPage
	if q.Count != nil {
		count = min(max(*q.Count, 0), MaxPage)
	}
	return max(q.Start, 1) - 1, count
}

// collector counts what passes a filter, and keeps a page of it.
type collector struct {
	filter      *document.Filter
	skip, count int
	page        Page
}

func (c *collector) add(r Resource) {
	if c.filter != nil && !c.filter.Match(r.Document) {
		return
	}
	if at := int(c.page.Total); at >= c.skip && len(c.page.Resources) < c.count {
		c.page.Resources = append(c.page.Resources, r)
	}
	c.page.Total++
}

// ListUsers lists people. Fault: invalid_filter.
func (s *Service) ListUsers(ctx context.Context, sc scope.Scope, q Query) (Page, error) {
	c, err := q.collector(s.people)
	if err != nil {
		return Page{}, err
	}
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		c.page.Total, c.page.Resources = 0, []Resource{}
		if c.filter == nil {
			return s.pageOfUsers(ctx, tx, c)
		}
		narrow, err := candidates(ctx, tx, c.filter)
		if err != nil {
			return err
		}
		if narrow != nil {
			people, err := selectPeopleIn(ctx, tx, narrow)
			if err != nil {
				return err
			}
			slices.SortFunc(people, func(a, b person) int { return compareIDs(a.ID, b.ID) })
			return s.addUsers(ctx, tx, c, people)
		}
		return s.scanUsers(ctx, tx, c)
	})
	return c.page, err
}

func (q Query) collector(k *document.Kind) (*collector, error) {
	c := &collector{}
	c.skip, c.count = q.bounds()
	c.page.Start = c.skip + 1
	if q.Filter == "" {
		return c, nil
	}
	var err error
	c.filter, err = document.ParseFilter(k, q.Filter)
	return c, err
}

// pageOfUsers is a page of all people.
func (s *Service) pageOfUsers(ctx context.Context, tx *db.Tx, c *collector) error {
	total, err := countPeople(ctx, tx)
	if err != nil || c.count == 0 {
		c.page.Total = total
		return err
	}
	people, err := selectPeople(ctx, tx, c.skip, c.count)
	if err != nil {
		return err
	}
	c.skip = 0
	err = s.addUsers(ctx, tx, c, people)
	c.page.Total = total
	return err
}

// candidates are the people who can pass a filter that asks for a name, an address or an id;
// nil where anybody can.
func candidates(ctx context.Context, tx *db.Tx, f *document.Filter) ([]string, error) {
	if id, ok := f.Equals("id"); ok {
		return []string{id}, nil
	}
	if id, ok := f.Equals("externalId"); ok && id != "" {
		return selectByExternalID(ctx, tx, id)
	}
	if name, ok := f.Equals("userName"); ok {
		return selectByFolded(ctx, tx, name)
	}
	return nil, nil
}

// scanUsers applies the filter to everybody, a batch at a time.
func (s *Service) scanUsers(ctx context.Context, tx *db.Tx, c *collector) error {
	people, err := selectPeople(ctx, tx, 0, batch)
	for err == nil && len(people) > 0 {
		if err = s.addUsers(ctx, tx, c, people); err != nil || len(people) < batch {
			break
		}
		people, err = selectPeopleAfter(ctx, tx, people[len(people)-1], batch)
	}
	return err
}

// addUsers adds people to a page, if they pass its filter.
func (s *Service) addUsers(ctx context.Context, tx *db.Tx, c *collector, people []person) error {
	ids := make([]string, len(people))
	for i, p := range people {
		ids[i] = p.ID
	}
	list, err := selectGroupsOf(ctx, tx, ids)
	if err != nil {
		return err
	}
	groups := map[string][]membership{}
	for _, m := range list {
		groups[m.UserID] = append(groups[m.UserID], m)
	}
	for _, p := range people {
		c.add(s.person(p, groups[p.ID]))
	}
	return nil
}

// ListGroups lists groups. Fault: invalid_filter.
func (s *Service) ListGroups(ctx context.Context, sc scope.Scope, q Query) (Page, error) {
	c, err := q.collector(s.groups)
	if err != nil {
		return Page{}, err
	}
	filtersMembers := c.filter.Uses("members")
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		c.page.Total, c.page.Resources = 0, []Resource{}
		groups, err := selectGroups(ctx, tx)
		if err != nil {
			return err
		}
		for _, g := range groups {
			var members []membership
			if filtersMembers {
				if members, err = selectMembers(ctx, tx, []string{g.ID}); err != nil {
					return err
				}
			}
			c.add(s.group(g, members))
		}
		if filtersMembers || !q.Select.Wants(s.groups, "members") {
			return nil
		}
		for i, r := range c.page.Resources {
			id, _ := r.Document["id"].(string)
			if c.page.Resources[i], err = s.loadGroup(ctx, tx, id, true); err != nil {
				return err
			}
		}
		return nil
	})
	return c.page, err
}
