package definition

import (
	"fmt"
	"slices"
	"strings"

	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	conditionsv1alpha1 "github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// decision is what a binding comes to, by the caches.
type decision struct {
	// out is the binding with the status that it should have.
	out binding
	// schemas are those of which there must be copies before the status is written.
	schemas []resourceSchema
	// names says that it takes names.
	names bool
	// lacking says that the cache lacks something that is there. Nothing can be decided.
	lacking bool
	// problems says why not everything is bound as the export says, by the reasons of kcp's conditions.
	problems map[string][]string
}

// exported is the export of a binding.
type exported struct {
	// export is nil if there is none.
	export *apisv1alpha2.APIExport
	// schema returns a schema, nil if it is not there, and why it cannot be used.
	schema func(name string) (s resourceSchema, unfit string)
}

// exported returns the export of a binding. It is not ok if another shard has it, and this term has not read it yet.
func (c *controller) exported(b binding) (out exported, ok bool) {
	offer, foreign := offerOf(b)
	if !foreign {
		out.export, _ = c.informers.APIExports.Get(offer.of)
		out.schema = func(name string) (resourceSchema, string) {
			s, _ := c.informers.APIResourceSchemas.Get(clusters.Key{Cluster: offer.of.Cluster, Name: name})
			return s, ""
		}
		return out, true
	}
	has, known := c.offers.get(offer)
	if has.Offer != nil {
		out.export = has.Export
		out.schema = func(name string) (resourceSchema, string) { return has.Schemas[name], has.unfit[name] }
	}
	return out, known
}

// decide must be called with the names of the cluster locked. It binds each resource of the export whose names are
// free. It never gives up what is bound: neither because the export is gone or names it no more, nor because its new
// schema cannot be used.
func (c *controller) decide(b binding) decision {
	d := decision{out: b.DeepCopy(), problems: map[string][]string{}}
	if d.out.Status.Phase == "" {
		d.out.Status.Phase = apisv1alpha2.APIBindingPhaseBinding
	}
	of := controllers.ExportOf(b)
	from, known := c.exported(b)
	switch {
	case !known && (conditions.IsTrue(b, apisv1alpha2.InitialBindingCompleted) || c.others.Contact.Hears(controllers.ExportShardOf(b))):
		d.lacking = true // what is bound stays so, and the rest is queued when the export is read
		return d
	case !known:
		d.invalid(apisv1alpha2.InternalErrorReason, fmt.Sprintf("shard %s is not heard, which has the APIExport: this goes on when it is", controllers.ExportShardOf(b)))
		d.summarize()
		return d
	case from.export == nil && c.mayHaveMoved(b):
		d.lacking = true
		return d
	case from.export == nil:
		d.invalid(apisv1alpha2.APIExportNotFoundReason, fmt.Sprintf("there is no APIExport %s in logical cluster %q", of.Name, of.Cluster))
		d.summarize()
		return d
	}
	export := from.export
	d.out.Status.APIExportClusterName = of.Cluster.String()
	d.claims(export.Spec.PermissionClaims)
	missing := false
	for n := range export.Spec.Resources {
		r := &export.Spec.Resources[n]
		s, unfit := from.schema(r.Schema)
		if unfit != "" {
			d.problem(apisv1alpha2.APIResourceSchemaInvalidReason, fmt.Sprintf("this shard cannot use APIResourceSchema %s of shard %s: %s", r.Schema, controllers.ExportShardOf(b), unfit))
			continue
		}
		if s == nil {
			missing = true
			d.invalid(apisv1alpha2.InternalErrorReason, fmt.Sprintf("the APIExport names APIResourceSchema %s, which is not there: ask the owner of the APIExport", r.Schema))
			continue
		}
		c.take(&d, s, export.Status.IdentityHash)
	}
	if !missing {
		conditions.MarkTrue(d.out, apisv1alpha2.APIExportValid)
	}
	d.summarize()
	return d
}

// take binds a schema, if it can be.
func (c *controller) take(d *decision, s resourceSchema, identity string) {
	all := &d.out.Status.BoundResources
	n := slices.IndexFunc(*all, func(r apisv1alpha2.BoundAPIResource) bool {
		return r.Group == s.Spec.Group && r.Resource == s.Spec.Names.Plural
	})
	if n >= 0 && (*all)[n].Schema.UID == string(s.UID) {
		(*all)[n].Schema.Name, (*all)[n].Schema.IdentityHash = s.Name, identity
		// somebody has deleted the copy by hand, or is about to, or the cache has not got it
		if kept, there := c.informers.BoundSchema(&(*all)[n]); !there || isUnused(kept) {
			d.schemas = append(d.schemas, s)
		}
		return
	}
	if n >= 0 && c.sameAs(&(*all)[n], s) { // its shard is another one now, or somebody has made it again
		(*all)[n].Schema.IdentityHash = identity
		return
	}
	bound := apisv1alpha2.BoundAPIResource{
		Group: s.Spec.Group, Resource: s.Spec.Names.Plural,
		Schema:          apisv1alpha2.BoundAPIResourceSchema{Name: s.Name, UID: string(s.UID), IdentityHash: identity},
		StorageVersions: []string{controllers.ResourceOfSchema(s).GVR.Version},
	}
	if n >= 0 {
		now, ok := c.informers.BoundSchema(&(*all)[n])
		if !ok {
			d.lacking = true
			return
		}
		bound.StorageVersions = union((*all)[n].StorageVersions, bound.StorageVersions)
		if why := unfit(now, s, bound.StorageVersions); why != "" {
			d.problem(apisv1alpha2.APIResourceSchemaInvalidReason, fmt.Sprintf("APIResourceSchema %s cannot take the place of %s: %s", s.Name, now.Name, why))
			return
		}
	}
	conflicts, ok := c.conflicts(d, s)
	if !ok {
		d.lacking = true
		return
	}
	if len(conflicts) > 0 {
		d.problem(apisv1alpha2.NamingConflictsReason, fmt.Sprintf("cannot bind %s.%s: %s", s.Spec.Names.Plural, s.Spec.Group, strings.Join(conflicts, ", ")))
		return
	}
	if n >= 0 {
		(*all)[n] = bound
	} else {
		*all = append(*all, bound)
	}
	d.schemas = append(d.schemas, s)
	d.names = true
}

// sameAs reports whether what is bound is a schema by name and content, though its uid is another one.
func (c *controller) sameAs(r *apisv1alpha2.BoundAPIResource, s resourceSchema) bool {
	kept, there := c.informers.BoundSchema(r)
	return there && !isUnused(kept) && r.Schema.Name == s.Name && equality.Semantic.DeepEqual(kept.Spec, s.Spec)
}

// conflicts returns which names of a schema others have: definitions, other bindings, and other resources of this one.
func (c *controller) conflicts(d *decision, s resourceSchema) (all []string, ok bool) {
	of := clusters.Key{Cluster: clusters.KeyOf(d.out).Cluster, Name: s.Spec.Group}
	others, ok := c.holders(of, d.out.Name)
	for n := range d.out.Status.BoundResources {
		r := &d.out.Status.BoundResources[n]
		if r.Group != s.Spec.Group || r.Resource == s.Spec.Names.Plural {
			continue
		}
		own, there := c.informers.BoundSchema(r)
		if at := slices.IndexFunc(d.schemas, func(s resourceSchema) bool { return string(s.UID) == r.Schema.UID }); at >= 0 {
			own, there = d.schemas[at], true
		}
		if ok = ok && there; ok {
			others = append(others, holder{fmt.Sprintf("%s.%s of this binding", r.Resource, r.Group), &own.Spec.Names})
		}
	}
	if !ok {
		return nil, false
	}
	ledger := c.groups.enter(of)
	defer c.groups.leave(of)
	ledger.hold(others)
	return ledger.conflicts(&s.Spec.Names), true
}

// unfit returns why a schema cannot take the place of another one, whose objects are stored.
func unfit(now, next resourceSchema, stored []string) string {
	switch {
	case now.Spec.Names.Kind != next.Spec.Names.Kind:
		return fmt.Sprintf("its kind is %s, and not %s", next.Spec.Names.Kind, now.Spec.Names.Kind)
	case now.Spec.Scope != next.Spec.Scope:
		return fmt.Sprintf("its scope is %s, and not %s", next.Spec.Scope, now.Spec.Scope)
	}
	for _, version := range stored {
		if !slices.ContainsFunc(next.Spec.Versions, func(v apiVersion) bool { return v.Name == version }) {
			return fmt.Sprintf("it lacks version %s, in which objects may be stored", version)
		}
	}
	return ""
}

func union(a, b []string) []string {
	all := slices.Sorted(slices.Values(slices.Concat(a, b)))
	return slices.Compact(all)
}

// claims says that claims are not granted.
func (d *decision) claims(claimed []apisv1alpha2.PermissionClaim) {
	d.out.Status.ExportPermissionClaims = claimed
	if len(claimed) == 0 && len(d.out.Spec.PermissionClaims) == 0 {
		conditions.Delete(d.out, apisv1alpha2.PermissionClaimsApplied)
		return
	}
	conditions.MarkFalse(d.out, apisv1alpha2.PermissionClaimsApplied, "NotSupported", conditionsv1alpha1.ConditionSeverityInfo,
		"This server does not grant permission claims. The resources of the export are bound without.")
}

func (d *decision) problem(reason, message string) {
	d.problems[reason] = append(d.problems[reason], message)
}

// invalid says what is wrong with the export.
func (d *decision) invalid(reason, message string) {
	d.problem(reason, message)
	conditions.MarkFalse(d.out, apisv1alpha2.APIExportValid, reason, conditionsv1alpha1.ConditionSeverityError, "%s", message)
}

// summarize says in the conditions what has come of the binding. Once everything was bound, it stays ready.
func (d *decision) summarize() {
	defer conditions.SetSummary(d.out, conditions.WithConditions(apisv1alpha2.InitialBindingCompleted))
	for _, reason := range []string{
		apisv1alpha2.NamingConflictsReason, apisv1alpha2.APIResourceSchemaInvalidReason, apisv1alpha2.InternalErrorReason, apisv1alpha2.APIExportNotFoundReason,
	} {
		messages := d.problems[reason]
		if len(messages) == 0 {
			continue
		}
		for _, of := range []conditionsv1alpha1.ConditionType{apisv1alpha2.BindingUpToDate, apisv1alpha2.InitialBindingCompleted} {
			if of == apisv1alpha2.BindingUpToDate || !conditions.IsTrue(d.out, of) {
				conditions.MarkFalse(d.out, of, reason, conditionsv1alpha1.ConditionSeverityError, "%s", strings.Join(messages, "; "))
			}
		}
		return
	}
	conditions.MarkTrue(d.out, apisv1alpha2.BindingUpToDate)
	conditions.MarkTrue(d.out, apisv1alpha2.InitialBindingCompleted)
	d.out.Status.Phase = apisv1alpha2.APIBindingPhaseBound
}
