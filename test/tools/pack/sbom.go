package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes a bill of materials (CycloneDX, JSON) of what Go recorded in the binary and in etcd's tools: what
// was linked, and not what go.mod allows.
func writeSBOM(w io.Writer, r release) error {
	b, err := r.one()
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(b.file)
	if err != nil {
		return fmt.Errorf("%s says nothing of its modules: %w", b.file, err)
	}
	content, err := os.ReadFile(b.file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.date.UTC().Format(time.RFC3339), Component: &cdx.Component{
		BOMRef: purl(info.Main.Path, r.version), PackageURL: purl(info.Main.Path, r.version),
		Type: cdx.ComponentTypeApplication, Name: "regent", Version: r.version,
		Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
	}}
	tools, err := buildinfo.ReadFile(b.tools())
	if err != nil {
		return fmt.Errorf("%s says nothing of its modules: %w", b.tools(), err)
	}
	components := []cdx.Component{library(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})}
	known := map[string]bool{}
	for _, dep := range slices.Concat(info.Deps, tools.Deps) { // what both have is listed once
		if c := library(dep); !known[c.BOMRef] {
			known[c.BOMRef], components = true, append(components, c)
		}
	}
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom.Components, bom.Dependencies = &components, &[]cdx.Dependency{{Ref: bom.Metadata.Component.BOMRef, Dependencies: &refs}}
	encoder := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON)
	return encoder.SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// library describes a module. Go's own sum of its content is there, because it is no digest of a file as CycloneDX
// knows it.
func library(m *debug.Module) cdx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, BOMRef: purl(m.Path, m.Version), PackageURL: purl(m.Path, m.Version)}
	if m.Sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}

// purl returns the package URL of a module.
func purl(module, version string) string {
	return "pkg:golang/" + module + "@" + url.QueryEscape(version) + "?type=module"
}
