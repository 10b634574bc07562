package source

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// defaultRegion is the region to sign with if none is set. S3 stores without regions accept it.
const defaultRegion = "us-east-1"

// Fetcher fetches the data of sources. It is safe for concurrent use.
type Fetcher struct {
	// Target calls the sources. It refuses addresses that the operator does not allow, reads at most
	// MaxBytes of an answer, and takes at most CallTime for a call.
	Target *outbound.Client
	Now    func() time.Time
	// Repository reads a file of a git repository. An error of the repository or the file is an
	// Invalid or BadGateway fault. nil: the provider git is refused.
	Repository func(ctx context.Context, f File) (Content, error)
	// Limit is how long all calls may take together; 0 means MaxTime.
	Limit time.Duration
}

// Order is one fetch.
type Order struct {
	// Provider is the kind of source; empty is HTTPJSON.
	Provider    string
	Config      Config
	Credentials Credentials
	// State is the state that the last fetch of this configuration returned. Previous is its
	// document.
	State    State
	Previous value.Value
	// Sample stops after the first page: it is a test of the source.
	Sample bool
	// Alive, if set, is called before each page. If it returns an error, the fetch ends with it.
	Alive func(ctx context.Context) error
	// Large, if set, is called once before the fetch takes much memory. It may wait for a turn, for
	// at most CallTime. If it returns an error, the fetch ends with it.
	Large func(ctx context.Context) error
}

// ErrBusy ends a fetch that waited longer than CallTime for its turn to take much memory. It is
// not a *Failure: the source did nothing wrong.
var ErrBusy = errors.New("too many large data sources are being read")

// Fetch reads a source. If the source or its configuration is wrong, the error is a *Failure.
func (f *Fetcher) Fetch(ctx context.Context, o Order) (Result, error) {
	p, wrong := prepare(cmp.Or(o.Provider, HTTPJSON), o.Config)
	if len(wrong) > 0 {
		return Result{}, failf("%s %s", wrong[0].Pointer, wrong[0].Message)
	}
	limit := f.Limit
	if limit <= 0 {
		limit = MaxTime
	}
	errTooSlow := failf("the source took longer than %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooSlow)
	defer cancel()
	r := &run{Fetcher: f, plan: p, order: o, began: f.Now()}
	res, err := r.fetch(ctx)
	if errors.Is(context.Cause(ctx), errTooSlow) {
		err = errTooSlow
	}
	return res, err
}

// run is the state of one fetch.
type run struct {
	*Fetcher
	plan
	order  Order
	began  time.Time
	header map[string][]string
	state  State
	// since is the time since which changes are requested; zero: everything is read.
	since time.Time
	large bool // Order.Large was called
}

// growLarge waits for the turn of a large fetch.
func (r *run) growLarge(ctx context.Context) error {
	if r.large || r.order.Large == nil {
		return nil
	}
	err := r.order.Large(ctx)
	r.large = err == nil
	return err
}

// reserve calls growLarge if the fetch now holds more than outbound.SmallReply bytes.
func (r *run) reserve(ctx context.Context, size uint64) error {
	if size <= outbound.SmallReply {
		return nil
	}
	return r.growLarge(ctx)
}

// checkAlive calls Order.Alive, if it is set.
func (r *run) checkAlive(ctx context.Context) error {
	if r.order.Alive == nil {
		return nil
	}
	return r.order.Alive(ctx)
}

// lastSync returns the time since which to request changes; zero: everything must be read.
func (r *run) lastSync() time.Time {
	last := r.order.State
	if r.Incremental == nil || r.order.Previous.Kind() != value.ObjectKind || last.Since.IsZero() ||
		r.began.Sub(last.FullAt) >= time.Duration(r.Incremental.FullHours)*time.Hour {
		return time.Time{}
	}
	return last.Since.UTC()
}

func (r *run) fetch(ctx context.Context) (Result, error) {
	r.since = r.lastSync()
	b := newBuilder(&r.plan, r.base())
	switch r.provider {
	case SQL:
		return r.resultOf(b, r.readSQL(ctx, b))
	case LDAP:
		return r.resultOf(b, r.readLDAP(ctx, b))
	case Git:
		return r.readGit(ctx, b)
	}
	return r.fetchPages(ctx, b)
}

// resultOf returns the result of the records in b, or err.
func (r *run) resultOf(b *builder, err error) (Result, error) {
	if err != nil {
		return Result{}, err
	}
	return r.result(b, value.Value{})
}

// fetchPages reads a source over HTTP.
func (r *run) fetchPages(ctx context.Context, b *builder) (Result, error) {
	if err := r.signIn(ctx); err != nil {
		return Result{}, err
	}
	first, err := r.firstURL()
	if err != nil {
		return Result{}, err
	}
	var doc value.Value
	for at, n, last := first, 1, ""; at != ""; n++ {
		if err := r.checkAlive(ctx); err != nil {
			return Result{}, err
		}
		if n > MaxPages {
			return Result{}, failf("the source has more than %d pages", MaxPages)
		}
		page, err := r.call(ctx, at)
		if err != nil || page.unchanged {
			return Result{Unchanged: page.unchanged, State: r.order.State}, err
		}
		if n > 1 && page.text == last {
			return Result{}, failf("page %d is the same as the one before: the source ignores the parameter of the pagination", n)
		}
		if last = page.text; n == 1 {
			r.noteState(page)
		}
		if doc, err = r.decode(page.text); err != nil {
			return Result{}, err
		}
		found, err := b.add(doc)
		if err == nil {
			err = r.reserve(ctx, b.size)
		}
		if err != nil {
			return Result{}, err
		}
		if r.order.Sample {
			break
		}
		if at, err = r.following(at, page, doc, n, found, b.taken); err != nil {
			return Result{}, err
		}
	}
	return r.result(b, doc)
}

// base returns the document that changes are added to; undefined: everything is read.
func (r *run) base() value.Value {
	if !r.since.IsZero() {
		return r.order.Previous
	}
	return value.Value{}
}

// result makes the result from the records of all pages. doc is the last answer: without Records
// and Key it is the data.
func (r *run) result(b *builder, doc value.Value) (Result, error) {
	res := Result{State: r.state}
	if r.Records == "" && r.Key == "" {
		if len(r.fields) > 0 {
			doc = r.mapRecord(doc)
		}
		res.Data, res.Records = doc, 1
		shown := []value.Value{doc}
		if doc.Kind() == value.ArrayKind {
			res.Records, shown = doc.Len(), doc.Elems()
		}
		for _, v := range shown[:min(len(shown), typed)] {
			b.show(v)
		}
	} else {
		res.Data, res.Records = b.document()
	}
	if res.Records > MaxRecords {
		return Result{}, tooMany()
	}
	// Stores and bouncers parse the stored document again: refuse what they would refuse.
	text := res.Data.AppendJSON(nil)
	if len(text) > MaxBytes {
		return Result{}, tooLarge()
	}
	if _, err := value.Decode(text, Limits()); err != nil {
		return Result{}, failf("the data is not JSON that gatehouse accepts: %s", err.Error())
	}
	res.Sample, res.Fields = b.sample()
	return res, nil
}

// Limits returns the limits for parsing documents that this package made.
func Limits() value.Limits { return value.Limits{Depth: maxDepth + 8, Values: 2 * maxValues} }

func tooMany() error  { return failf("the source has more than %d records", MaxRecords) }
func tooLarge() error { return failf("the data is larger than %d MiB", MaxBytes>>20) }

// signIn sets the header fields of all calls. With an OAuth client, it gets a token first.
func (r *run) signIn(ctx context.Context) error {
	r.header = map[string][]string{"Accept": {"application/json"}, "User-Agent": {"gatehouse"}}
	switch {
	case r.Format == formatCSV:
		r.header["Accept"] = []string{"text/csv"}
	case r.provider == SCIM:
		r.header["Accept"] = []string{"application/scim+json, application/json"}
	}
	for name, text := range r.Headers {
		r.header[name] = []string{text}
	}
	secrets := r.order.Credentials
	for name, text := range secrets.Headers {
		r.header[name] = []string{text}
	}
	switch {
	case r.provider == S3: // call signs each request
	case secrets.Token != "":
		r.header["Authorization"] = []string{"Bearer " + secrets.Token}
	case secrets.Username != "":
		r.header["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(secrets.Username+":"+secrets.Password))}
	case secrets.OAuth != nil:
		token, status, err := r.Target.ClientToken(ctx, outbound.ClientGrant{
			TokenURL: r.OAuth.TokenURL, ID: secrets.OAuth.ID, Secret: secrets.OAuth.Secret, Scope: r.OAuth.Scope, Basic: r.OAuth.ClientAuth == "basic",
		})
		switch {
		case err != nil:
			return failf("the token endpoint could not be reached")
		case token == "":
			return &Failure{Message: "the token endpoint returned no token", Status: status}
		}
		r.header["Authorization"] = []string{"Bearer " + token}
	}
	return nil
}

// firstURL returns the address of the first page.
func (r *run) firstURL() (string, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return "", failf("the address is not a URL")
	}
	query := u.Query()
	if !r.since.IsZero() {
		query.Set(r.Incremental.Parameter, r.sinceText())
	}
	if p := r.Pagination; p != nil {
		if p.SizeParameter != "" {
			query.Set(p.SizeParameter, strconv.Itoa(p.PageSize))
		}
		if p.Type == "page" || p.Type == "offset" {
			query.Set(p.Parameter, strconv.Itoa(*p.First))
		}
	}
	if len(query) > 0 {
		u.RawQuery = query.Encode()
	}
	return u.String(), nil
}

// sinceText returns since in the format that the source expects.
func (r *run) sinceText() string {
	switch text := r.since.Format(time.RFC3339); {
	case r.provider == SCIM:
		return `meta.lastModified ge "` + text + `"`
	case r.Incremental.Format == "unix":
		return strconv.FormatInt(r.since.Unix(), 10)
	default:
		return text
	}
}

// page is one answer.
type page struct {
	text      string
	header    func(name string) string
	links     []string
	unchanged bool
}

// call gets one page.
func (r *run) call(ctx context.Context, at string) (page, error) {
	req := outbound.Request{Method: r.Method, URL: at, Header: maps.Clone(r.header), Large: r.growLarge}
	if r.Body != nil {
		body, err := json.Marshal(r.Body)
		if err != nil {
			return page{}, failf("the body cannot be written as JSON")
		}
		req.Body, req.Header["Content-Type"] = body, []string{"application/json"}
	}
	// With several pages, an unchanged first page would say nothing about the others.
	conditional := r.Pagination == nil && r.since.IsZero() && !r.order.Sample && r.order.Previous.Defined() && r.Incremental == nil
	if conditional && r.order.State.ETag != "" {
		req.Header["If-None-Match"] = []string{r.order.State.ETag}
	}
	if conditional && r.order.State.LastModified != "" {
		req.Header["If-Modified-Since"] = []string{r.order.State.LastModified}
	}
	if secrets := r.order.Credentials; r.provider == S3 && secrets.Username != "" { // without a key, the object must be public
		if err := req.SignS3(ctx, secrets.Username, secrets.Password, secrets.SessionToken, r.region()); err != nil {
			return page{}, failf("the address is not a URL")
		}
	}
	res, err := r.Target.Do(ctx, req)
	switch {
	case errors.Is(err, ErrBusy):
		return page{}, err
	case err != nil && ctx.Err() != nil:
		return page{}, context.Cause(ctx)
	case err != nil:
		return page{}, failf("the source could not be reached")
	case res.Status == 304 && conditional:
		return page{unchanged: true}, nil
	case !res.OK():
		text := strconv.Itoa(res.Status)
		if name := res.StatusText(); name != "" {
			text += " (" + name + ")"
		}
		return page{}, &Failure{Message: "the source answered " + text, Status: res.Status}
	case res.Truncated:
		return page{}, failf("the answer is larger than %d MiB", MaxBytes>>20)
	}
	return page{text: string(res.Body), header: res.Header.Get, links: res.Header.Values("Link")}, nil
}

// region returns the region of the bucket.
func (r *run) region() string {
	if r.S3 == nil {
		return defaultRegion
	}
	return cmp.Or(r.S3.Region, defaultRegion)
}

// noteState takes the state for the next fetch from the first page.
func (r *run) noteState(p page) {
	short := func(name string) string {
		if v := p.header(name); len(v) <= 500 {
			return v
		}
		return ""
	}
	r.noteFull()
	if r.Incremental == nil {
		r.state.ETag, r.state.LastModified = short("ETag"), short("Last-Modified")
		return
	}
	// Changes are known up to the Date of the answer, which is by the clock of the source. Date
	// counts whole seconds, so subtract one. A Date a day or more from our clock is ignored.
	r.state.Since = r.began
	if at, err := time.Parse(time.RFC1123, p.header("Date")); err == nil && at.Sub(r.began).Abs() < 24*time.Hour {
		r.state.Since = at.UTC()
	}
	r.state.Since = r.state.Since.Add(-time.Second)
}

// noteFull sets the state for the next fetch to when everything was last read.
func (r *run) noteFull() {
	r.state = State{FullAt: r.order.State.FullAt}
	if r.since.IsZero() {
		r.state.FullAt = r.began
	}
}

// following returns the address of the page after the nth page, which had found records; taken is
// the number of records of all pages so far. An empty address means that the nth was the last page.
func (r *run) following(at string, p page, doc value.Value, n, found, taken int) (string, error) {
	how := r.Pagination
	if how == nil {
		return "", nil
	}
	switch how.Type {
	case "link":
		return r.linked(at, p, doc)
	case "cursor":
		cursor, err := r.token(doc)
		if cursor == "" || err != nil {
			return "", err
		}
		return with(at, how.Parameter, cursor)
	}
	if last, err := r.isLast(doc, found, taken); last || err != nil {
		return "", err
	}
	next := *how.First + n
	if how.Type == "offset" {
		next = *how.First + taken
	}
	return with(at, how.Parameter, strconv.Itoa(next))
}

// isLast reports whether a page is the last one. It has found records; all pages so far have taken.
func (r *run) isLast(doc value.Value, found, taken int) (bool, error) {
	if r.Pagination.Total == "" {
		return found == 0 || found < r.Pagination.PageSize, nil
	}
	total, ok := r.total.one(doc).Integer()
	switch {
	case !ok:
		return false, failf("the value at %s is not an integer", r.Pagination.Total)
	case int64(taken) >= total:
		return true, nil
	case found == 0:
		return false, failf("the source says that it has %d records, but returned %d", total, taken)
	}
	return false, nil
}

// token returns the token or URL at Pagination.Next; empty: there is no further page.
func (r *run) token(doc value.Value) (string, error) {
	v := r.next.one(doc)
	if text, ok := v.Str(); ok {
		if len(text) > 4000 {
			return "", failf("the token or URL of the next page is longer than 4000 bytes")
		}
		return text, nil
	}
	if n, ok := v.Integer(); ok {
		return strconv.FormatInt(n, 10), nil
	}
	if !v.Defined() || v.IsNull() || v.False() {
		return "", nil
	}
	return "", failf("the value at %s is neither a text nor an integer", r.Pagination.Next)
}

// linked returns the URL of the next page that the answer names; empty: there is none. It refuses
// a URL at another origin, which must not get the credentials.
func (r *run) linked(at string, p page, doc value.Value) (string, error) {
	var err error
	next := ""
	if r.Pagination.Next != "" {
		next, err = r.token(doc)
	} else {
		next = linkNext(p.links)
	}
	if next == "" || err != nil {
		return "", err
	}
	base, err := url.Parse(at)
	if err != nil {
		return "", failf("the address is not a URL")
	}
	u, err := base.Parse(next)
	if err != nil {
		return "", failf("the address of the next page is not a URL")
	}
	if !outbound.SameOrigin(r.URL, u.String()) {
		return "", failf("the next page is at another host, which gatehouse does not call")
	}
	return u.String(), nil
}

// with returns a URL with a query parameter set.
func with(at, name, text string) (string, error) {
	u, err := url.Parse(at)
	if err != nil {
		return "", failf("the address is not a URL")
	}
	query := u.Query()
	query.Set(name, text)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// linkNext returns the target of the first link with the relation next (RFC 8288); empty: none.
func linkNext(fields []string) string {
	for _, field := range fields {
		for field != "" {
			_, rest, ok := strings.Cut(field, "<")
			if !ok {
				break
			}
			target, rest, ok := strings.Cut(rest, ">")
			if !ok {
				break
			}
			parameters, _, _ := strings.Cut(rest, "<")
			if field = rest[len(parameters):]; relatesNext(parameters) {
				return target
			}
		}
	}
	return ""
}

// relatesNext reports whether the parameters of a link have the relation next.
func relatesNext(parameters string) bool {
	for part := range strings.SplitSeq(strings.TrimRight(parameters, ", \t"), ";") {
		name, text, _ := strings.Cut(strings.TrimSpace(part), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "rel") {
			continue
		}
		for word := range strings.FieldsSeq(strings.Trim(strings.TrimSpace(text), `"`)) {
			if strings.EqualFold(word, "next") {
				return true
			}
		}
	}
	return false
}
