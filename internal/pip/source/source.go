// Package source fetches the data of data sources: it calls them, follows their pages, and
// makes one JSON document from their answers. It stores nothing. It bounds everything that it
// reads: if a source exceeds a bound, the fetch ends with a Failure, and never with partial data.
package source

import (
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The bounds of one fetch.
const (
	// MaxBytes is how large one answer may be, and the document as JSON.
	MaxBytes = 8 << 20
	// MaxRecords is how many records a document may have.
	MaxRecords = 50_000
	// MaxPages is how many pages are read.
	MaxPages = 1_000
	// MaxTime is how long all calls may take together.
	MaxTime = 5 * time.Minute
	// CallTime is how long one call may take, including its answer.
	CallTime = 30 * time.Second

	maxValues = 1_000_000
	// maxDepth is how deep an answer may be nested. The document can be two levels deeper (see
	// Limits), and a bundle accepts 64.
	maxDepth = 40
)

// The providers: the kinds of sources.
const (
	HTTPJSON = "http_json" // JSON or CSV over HTTP
	SCIM     = "scim"      // the users or groups of a SCIM 2.0 directory (RFC 7644)
	S3       = "s3"        // a file in an S3 bucket
	SQL      = "sql"       // a query of a PostgreSQL database
	LDAP     = "ldap"      // a search in an LDAP directory (RFC 4511)
	Git      = "git"       // a file of a git repository
)

// Config says what to read, and how to convert it.
type Config struct {
	URL         string            `json:"url" maxLength:"2000" doc:"Address of the source. http_json, scim, s3: an https URL, or http to an address that the operator allows. git: the https URL of the repository. sql: postgres://host:port/database. ldap: ldaps://host:port, or ldap://host:port, which is encrypted by StartTLS. No internal network, unless the operator allows it." example:"https://hr.example.com/api/people"`
	Method      string            `json:"method,omitempty" enum:"GET,POST" doc:"GET by default."`
	Headers     map[string]string `json:"headers,omitempty" doc:"Header fields to send. Readers can see them: put secret ones into credentials."`
	Body        map[string]any    `json:"body,omitempty" doc:"JSON object to send with POST."`
	Format      string            `json:"format,omitempty" enum:"json,csv,yaml" doc:"Format of the answer; json by default, and for the provider git by the name of the file. csv: the first line names the columns, and each other line is a record of texts. yaml: only of the provider git."`
	Records     string            `json:"records,omitempty" maxLength:"500" doc:"JSONPath of the records in the answer: of each record, or of the array of records. Absent: the whole answer is the data." example:"$.items"`
	Key         string            `json:"key,omitempty" maxLength:"500" doc:"JSONPath of the key within a record, or the name of a member: a string or an integer, unique. With it the data is an object of records by key, else an array." example:"id"`
	Fields      map[string]string `json:"fields,omitempty" doc:"The members that each record gets, with the JSONPath of each within the record, or the name of a member. Absent: the record as it is."`
	Pagination  *Pagination       `json:"pagination,omitempty" doc:"How the source returns further pages. Absent: there is one page."`
	Incremental *Incremental      `json:"incremental,omitempty" doc:"How to request only changes. Needs key."`
	OAuth       *OAuth            `json:"oauth,omitempty" doc:"Where the client gets its access token, for credentials.oauth."`
	S3          *Bucket           `json:"s3,omitempty" doc:"For the provider s3: how requests are signed."`
	SQL         *Query            `json:"sql,omitempty" doc:"For the provider sql: what to read."`
	LDAP        *Search           `json:"ldap,omitempty" doc:"For the provider ldap: what to read."`
	Git         *Place            `json:"git,omitempty" doc:"For the provider git: which file to read."`
}

// Bucket says how requests to an S3 store are signed (AWS Signature Version 4).
type Bucket struct {
	Region string `json:"region,omitempty" maxLength:"100" doc:"Region of the bucket; us-east-1 by default." example:"eu-west-1"`
}

// Place is a file of a git repository.
type Place struct {
	Path   string `json:"path" minLength:"1" maxLength:"500" doc:"Path of a JSON, YAML or CSV file within the repository." example:"data/people.yaml"`
	Branch string `json:"branch,omitempty" maxLength:"200" doc:"Branch or tag; absent: the default branch." example:"main"`
}

// Query says what to read from a database.
type Query struct {
	Query string `json:"query" minLength:"1" maxLength:"20000" doc:"One SELECT. Each row is a record: an object of its columns, as PostgreSQL converts them to JSON. With incremental, $1 is the time of the last sync, or null to read everything." example:"SELECT id, grade FROM people"`
}

// Search says what to read from a directory (RFC 4511, 4.5.1).
type Search struct {
	BaseDN     string   `json:"base_dn" minLength:"1" maxLength:"1000" doc:"Distinguished name of the entry where the search starts." example:"ou=people,dc=example,dc=com"`
	Filter     string   `json:"filter,omitempty" maxLength:"4000" doc:"Which entries to read (RFC 4515); all by default." example:"(objectClass=person)"`
	Scope      string   `json:"scope,omitempty" enum:"sub,one,base" doc:"sub (default): the whole subtree. one: the entries directly below base_dn. base: that entry alone."`
	Attributes []string `json:"attributes,omitempty" maxItems:"100" doc:"Attributes of which each record gets the first value, as a text. Bytes that are not UTF-8 are given in base64."`
	Lists      []string `json:"lists,omitempty" maxItems:"100" doc:"Attributes of which each record gets all values, as an array of texts." example:"[\"memberOf\"]"`
}

// Pagination says how a source returns further pages.
type Pagination struct {
	Type          string `json:"type" enum:"link,page,offset,cursor" doc:"link: the answer names the next page, in its Link header (RFC 8288) or at next. page, offset: by number of the page or of records to skip. cursor: the answer has a token for the next page at next."`
	Next          string `json:"next,omitempty" maxLength:"500" doc:"For cursor, and for link without a Link header: JSONPath of the token or URL. If it is absent, null or empty in the answer, the page is the last one." example:"$.meta.next"`
	Parameter     string `json:"parameter,omitempty" maxLength:"100" doc:"Query parameter for the page, offset or cursor; its default is that word."`
	SizeParameter string `json:"size_parameter,omitempty" maxLength:"100" doc:"Query parameter for page_size." example:"limit"`
	Total         string `json:"total,omitempty" maxLength:"500" doc:"For page and offset: JSONPath of the number of all records. Pages are read until there are that many, however many each has." example:"$.totalResults"`
	PageSize      int    `json:"page_size,omitempty" minimum:"1" maximum:"10000" doc:"Number of records of a full page. A page with fewer is the last one; without page_size, a page with none."`
	First         *int   `json:"first,omitempty" minimum:"0" maximum:"1" doc:"Number of the first page or record; 1 by default for page, 0 for offset."`
}

// Incremental says how to request only what changed.
type Incremental struct {
	Parameter string `json:"parameter,omitempty" maxLength:"100" doc:"http_json: query parameter for the time of the last sync, required. ldap: attribute with the time of an entry's last change; modifyTimestamp by default. scim asks for meta.lastModified, and sql passes the time to the query as $1: they take no parameter." example:"updated_since"`
	Format    string `json:"format,omitempty" enum:"rfc3339,unix" doc:"Format of that time; rfc3339 by default."`
	Deleted   string `json:"deleted,omitempty" maxLength:"500" doc:"JSONPath within a record, or the name of a member. A record is deleted if the value there is anything but false, null, 0 or an empty text." example:"deleted_at"`
	FullHours int    `json:"full_after_hours,omitempty" minimum:"1" maximum:"8760" doc:"After this time everything is read again, to find changes that the source did not report; 24 by default."`
}

// OAuth says where to get an access token (RFC 6749, 4.4).
type OAuth struct {
	TokenURL   string `json:"token_url" maxLength:"2000" doc:"Token endpoint." example:"https://login.example.com/token"`
	Scope      string `json:"scope,omitempty" maxLength:"500" doc:"Scopes to request, separated by spaces."`
	ClientAuth string `json:"client_auth,omitempty" enum:"body,basic" doc:"Whether the client's id and secret are sent in the body (default) or as HTTP Basic."`
}

// Credentials are the secrets of a source: a token, a name with a password, or an OAuth client; and
// secret header fields.
type Credentials struct {
	Token    string `json:"token,omitempty" maxLength:"8000" doc:"Bearer token."`
	Username string `json:"username,omitempty" maxLength:"500" doc:"User name, for HTTP Basic."`
	Password string `json:"password,omitempty" maxLength:"8000" doc:"Password, for HTTP Basic."`
	// SessionToken belongs to temporary S3 keys.
	SessionToken string            `json:"session_token,omitempty" maxLength:"8000" doc:"For the provider s3 with temporary keys: their session token."`
	OAuth        *Client           `json:"oauth,omitempty" doc:"OAuth client, which gets its token at configuration.oauth."`
	Headers      map[string]string `json:"headers,omitempty" doc:"Secret header fields, such as an API key."`
}

// Client is an OAuth client.
type Client struct {
	ID     string `json:"client_id" minLength:"1" maxLength:"500" doc:"Id of the client."`
	Secret string `json:"client_secret" minLength:"1" maxLength:"8000" doc:"Secret of the client."`
}

// Empty reports whether there are no credentials.
func (c Credentials) Empty() bool {
	return c.Token == "" && c.Username == "" && c.Password == "" && c.SessionToken == "" && c.OAuth == nil && len(c.Headers) == 0
}

// State is what the next fetch of the same configuration needs to know of the last one.
type State struct {
	ETag         string    `json:"etag,omitempty"`
	LastModified string    `json:"last_modified,omitempty"`
	Since        time.Time `json:"since,omitzero"`   // changes are known up to then, by the clock of the source
	FullAt       time.Time `json:"full_at,omitzero"` // when everything was read
	Commit       string    `json:"commit,omitempty"` // of a git source
}

// Result is the result of a fetch.
type Result struct {
	// Unchanged is true if the source has nothing new. Data is then undefined: the data of the last
	// fetch stays valid.
	Unchanged bool
	// Data is the document.
	Data value.Value
	// Records is how many records Data has.
	Records int
	// State is for the next fetch.
	State State
	// Sample has the first records, shortened for a person to read. Fields has their members.
	Sample []value.Value
	Fields []Field
}

// Field is a member of records.
type Field struct {
	Name string `json:"name" doc:"Name of the member."`
	Type string `json:"type" enum:"string,number,boolean,object,array,null,mixed" doc:"Type of its values in the first records."`
}

// Failure says why a fetch failed, for the owner of the source. It never repeats what the source
// answered.
type Failure struct {
	Message string
	// Status is the HTTP status of the answer; 0: there was none, or it was not the cause.
	Status int
}

func (f *Failure) Error() string { return f.Message }

func failf(format string, args ...any) error { return &Failure{Message: fmt.Sprintf(format, args...)} }
