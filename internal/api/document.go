package api

import (
	"embed"
	"io/fs"

	"github.com/gatehouse-dev/gatehouse/internal/api/oem"
	"github.com/gatehouse-dev/gatehouse/internal/contract"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
)

// The version of the API (semantic), as info.x-gatehouse-contract reports it. Removing an
// operation, member or value, or narrowing a type, needs a new major version: a test compares the
// document with the last one.
const (
	APIVersion    = "2.0.0"
	SchemaVersion = "1.0.0"
	// OEMVersion is the version of the API for embedding vendors, which has its own numbers.
	OEMVersion = "1.0.0"
)

// Contract is info.x-gatehouse-contract.
type Contract struct {
	APIVersion        string `json:"api_version"`
	SchemaVersion     string `json:"schema_version"`
	DeprecationPolicy string `json:"deprecation_policy"`
}

// catalogues hold the translations of the document.
//
//go:embed locales
var catalogues embed.FS

// Languages are the languages of the document, which is written in the first one.
var Languages = []string{"en", "es", "fr"}

// document describes the API as a whole.
func document() (rest.Document, error) {
	locales, err := fs.Sub(catalogues, "locales")
	return rest.Document{
		Title: "gatehouse", Version: APIVersion, License: "Apache-2.0",
		Description: "Policies, protected resources, decisions and the bouncers that enforce them.",
		Extensions:  contractOf(APIVersion),
		OwnTypes:    "github.com/gatehouse-dev/gatehouse/internal/api",
		Prefixes:    map[string]string{"github.com/gatehouse-dev/gatehouse/internal/replay/compare": "Rerun"},
		Names:       []string{"name", "username", "department", "owner_team", "roles", "tags", "compliance_tags", "data_residency"},
		Languages:   Languages, Catalogues: locales,
		Families: []contract.Family{{
			Name: oem.Family, Root: oem.Root, Title: "gatehouse OEM", Version: OEMVersion,
			Description: "For vendors who embed the product: create, read, change and delete tenants, and read their usage. Send the vendor's key as X-API-Key or as a bearer token; it works with these operations alone, and finds only the tenants that it created.",
			Extensions:  contractOf(OEMVersion),
		}},
	}, err
}

// contractOf returns the extension of info for a version.
func contractOf(version string) map[string]any {
	return map[string]any{"x-gatehouse-contract": Contract{
		APIVersion: version, SchemaVersion: SchemaVersion,
		DeprecationPolicy: "A breaking change comes with a new major api_version and is announced in the change log at least 180 days before; what is deprecated is marked so in this document and keeps working until then.",
	}}
}
