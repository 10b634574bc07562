package scim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scim/document"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// batch is how many people are read at a time while a filter is applied.
	batch = 500
	// maxParts is how many members of groups, or groups of people, a page has in all: 200 groups of
	// 10,000 people would be an answer of 350 MB. A page with more ends earlier, as RFC 7644 section
	// 3.4.2.4 permits, and the client continues after itemsPerPage.
	maxParts = 20_000
	// maxExamined is how many people and memberships may be read for one filter. More is the error
	// tooMany (RFC 7644 section 3.12).
	maxExamined = 200_000
)

// Query is a request for a list.
type Query struct {
	// Filter is the text of a filter; empty: none.
	Filter string
	// Start is the index of the first result, from 1. Count is the number of results; nil:
	// defaultPage.
	Start int
	Count *int
	// Select says which attributes the answer has.
	Select document.Selection
}

// Page is a page of a list, in the order in which the resources were added.
type Page struct {
	Resources []Resource
	Total     int64
	Start     int
}

// bounds returns how many results to skip, and how many to return, at most MaxPage.
func (q Query) bounds() (skip, count int) {
	count = defaultPage
	if q.Count != nil {
		count = min(max(*q.Count, 0), MaxPage)
	}
	return max(q.Start, 1) - 1, count
}

// collector counts the people or groups that match a filter, and keeps those on one page.
type collector struct {
	filter      *document.Filter
	skip, count int
	page        Page
	people      []person
	groups      []group
	// left is how many people and memberships may still be read for the filter.
	left int
}

func (c *collector) reset(most int) {
	c.page.Total, c.page.Resources, c.people, c.groups, c.left = 0, []Resource{}, nil, nil, most
}

// examine counts n more people or memberships that were read for the filter. Fault: too_many.
func (c *collector) examine(n int) error {
	if c.left -= n; c.left < 0 {
		return fault.New(fault.BadRequest, "too_many", "the filter needs too many people and memberships to be read: filter by id, externalId or userName, or list without a filter")
	}
	return nil
}

// scans has the tenants for which a filter is being applied to all people or groups. Each tenant
// may run one at a time, because one takes a second of processor time for 100,000 people.
type scans struct {
	most    int // how many people and memberships one may read
	mu      sync.Mutex
	running map[scope.TenantID]bool
}

// begin starts a scan. The caller must call done at its end. Fault: RateLimited.
func (s *scans) begin(tenant scope.TenantID) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[tenant] {
		return nil, fault.New(fault.RateLimited, "rate_limit_exceeded", "another filter is being applied to all users or groups of the tenant").After(time.Second)
	}
	s.running[tenant] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, tenant)
	}, nil
}

// accepts counts a resource if it matches the filter, and reports whether it is on the page.
func (c *collector) accepts(r Resource) bool {
	if c.filter != nil && !c.filter.Match(r.Document) {
		return false
	}
	at := int(c.page.Total)
	c.page.Total++
	return at >= c.skip && at-c.skip < c.count
}

// ListUsers lists people. Faults: invalid_filter, too_many, RateLimited.
func (s *Service) ListUsers(ctx context.Context, sc scope.Scope, q Query) (Page, error) {
	c, err := q.collector(s.people)
	if err != nil {
		return Page{}, err
	}
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		c.reset(s.scans.most)
		if err := s.findUsers(ctx, tx, sc.Tenant, c); err != nil {
			return err
		}
		return s.showUsers(ctx, tx, c, q.Select)
	})
	return c.page, err
}

// findUsers finds the people of a page. It applies a filter to all people only if the filter does
// not narrow them.
func (s *Service) findUsers(ctx context.Context, tx *db.Tx, tenant scope.TenantID, c *collector) error {
	if c.filter == nil {
		return pageOfUsers(ctx, tx, c)
	}
	narrow, err := candidates(ctx, tx, c.filter)
	if err != nil {
		return err
	}
	if narrow == nil {
		done, err := s.scans.begin(tenant)
		if err != nil {
			return err
		}
		defer done()
		return s.scanUsers(ctx, tx, c)
	}
	people, err := selectPeopleIn(ctx, tx, narrow)
	if err != nil {
		return err
	}
	slices.SortFunc(people, func(a, b person) int { return strings.Compare(a.ID, b.ID) })
	return s.addUsers(ctx, tx, c, people)
}

// showUsers makes the resources of a page, with the groups of its people if they are selected.
func (s *Service) showUsers(ctx context.Context, tx *db.Tx, c *collector, sel document.Selection) error {
	groups := map[string][]membership{}
	if sel.Wants(s.people, "groups") {
		ids := idsOf(c.people, func(p person) string { return p.ID })
		counts, err := countGroupsOf(ctx, tx, ids)
		if err != nil {
			return err
		}
		ids = fitting(ids, counts)
		c.people = c.people[:len(ids)]
		if groups, err = groupsOf(ctx, tx, ids); err != nil {
			return err
		}
	}
	for _, p := range c.people {
		c.page.Resources = append(c.page.Resources, s.person(p, groups[p.ID]))
	}
	return nil
}

func idsOf[T any](list []T, id func(T) string) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = id(v)
	}
	return out
}

// fitting returns the first resources of a page that together have at most maxParts members or
// groups. It always returns the first one. counts has the number of each resource.
func fitting(ids []string, counts []partCount) []string {
	has := map[string]int64{}
	for _, n := range counts {
		has[n.ID] = n.Parts
	}
	parts := int64(0)
	for i, id := range ids {
		if parts += has[id]; i > 0 && parts > maxParts {
			return ids[:i]
		}
	}
	return ids
}

// groupsOf returns the groups of people, by person.
func groupsOf(ctx context.Context, tx *db.Tx, people []string) (map[string][]membership, error) {
	list, err := selectGroupsOf(ctx, tx, people)
	groups := map[string][]membership{}
	for _, m := range list {
		groups[m.UserID] = append(groups[m.UserID], m)
	}
	return groups, err
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

// pageOfUsers collects a page of all people, without a filter.
func pageOfUsers(ctx context.Context, tx *db.Tx, c *collector) (err error) {
	if c.page.Total, err = countPeople(ctx, tx); err != nil || c.count == 0 {
		return err
	}
	c.people, err = selectPeople(ctx, tx, c.skip, c.count)
	return err
}

// candidates returns the ids of the people who can match a filter that requires an id, externalId
// or userName; nil: the filter requires none of these.
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

// scanUsers applies the filter to all people, in batches.
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

// addUsers adds the people who match the filter.
func (s *Service) addUsers(ctx context.Context, tx *db.Tx, c *collector, people []person) (err error) {
	var groups map[string][]membership
	if err := c.examine(len(people)); err != nil {
		return err
	}
	if c.filter.Uses("groups") {
		if groups, err = groupsOf(ctx, tx, idsOf(people, func(p person) string { return p.ID })); err != nil {
			return err
		}
		for _, of := range groups {
			if err := c.examine(len(of)); err != nil {
				return err
			}
		}
	}
	for _, p := range people {
		if c.accepts(s.person(p, groups[p.ID])) {
			c.people = append(c.people, p)
		}
	}
	return nil
}

// ListGroups lists groups. Faults: invalid_filter, too_many, RateLimited.
func (s *Service) ListGroups(ctx context.Context, sc scope.Scope, q Query) (Page, error) {
	c, err := q.collector(s.groups)
	if err != nil {
		return Page{}, err
	}
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		c.reset(s.scans.most)
		groups, err := selectGroups(ctx, tx)
		if err != nil {
			return err
		}
		of, narrowed, err := groupsWith(ctx, tx, c.filter)
		if err != nil {
			return err
		}
		if !narrowed && c.filter != nil && c.filter.Uses("members") {
			done, err := s.scans.begin(sc.Tenant)
			if err != nil {
				return err
			}
			defer done()
		}
		if narrowed {
			groups = slices.DeleteFunc(groups, func(g group) bool { return !of[g.ID] })
		}
		if err := addGroups(ctx, tx, c, groups, s.group); err != nil {
			return err
		}
		return s.showGroups(ctx, tx, c, q.Select)
	})
	return c.page, err
}

// addGroups adds the groups that match the filter. show makes the resource of a group.
func addGroups(ctx context.Context, tx *db.Tx, c *collector, groups []group, show func(group, []membership) Resource) error {
	for _, g := range groups {
		var members []membership
		if c.filter.Uses("members") {
			var err error
			if members, err = selectMembers(ctx, tx, []string{g.ID}); err != nil {
				return err
			}
			if err := c.examine(len(members)); err != nil {
				return err
			}
		}
		if c.accepts(show(g, members)) {
			c.groups = append(c.groups, g)
		}
	}
	return nil
}

// groupsWith returns the groups that can match a filter that requires a member. Directories use
// such filters to find a person's groups. narrowed is false if the filter requires no member.
func groupsWith(ctx context.Context, tx *db.Tx, f *document.Filter) (of map[string]bool, narrowed bool, err error) {
	if f == nil {
		return nil, false, nil
	}
	id, ok := f.Equals("members.value")
	if !ok {
		return nil, false, nil
	}
	list, err := selectGroupsOf(ctx, tx, []string{id})
	of = map[string]bool{}
	for _, m := range list {
		of[m.GroupID] = true
	}
	return of, true, err
}

// showGroups makes the resources of a page, with the members of its groups if they are selected.
func (s *Service) showGroups(ctx context.Context, tx *db.Tx, c *collector, sel document.Selection) error {
	members := map[string][]membership{}
	if sel.Wants(s.groups, "members") {
		ids := idsOf(c.groups, func(g group) string { return g.ID })
		counts, err := countMembersOf(ctx, tx, ids)
		if err != nil {
			return err
		}
		ids = fitting(ids, counts)
		c.groups = c.groups[:len(ids)]
		list, err := selectMembers(ctx, tx, ids)
		if err != nil {
			return err
		}
		for _, m := range list {
			members[m.GroupID] = append(members[m.GroupID], m)
		}
	}
	for _, g := range c.groups {
		c.page.Resources = append(c.page.Resources, s.group(g, members[g.ID]))
	}
	return nil
}
