package kcpcore

import (
	"net/url"
	"strings"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

type shard = *corev1alpha1.Shard

// shards are the members of an installation. Those in cluster root of the root shard say who is a member; each shard
// has copies of them in cluster system:shards, of which it writes the status of its own.
var shards = resource.Definition[shard]{
	GVR:        corev1alpha1.SchemeGroupVersion.WithResource("shards"),
	Categories: []string{"kcp"},
	List:       &corev1alpha1.ShardList{},
	// kcp's types have no protobuf encoding.
	Stored: resource.Stored[shard]{JSONOnly: true},
	// A shard's name is the value of labels, and a part of URLs.
	Name:          validation.NameIsDNSLabel,
	Unconditional: true,
	Reset:         fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	PrepareCreate: func(s shard) {
		s.Generation = 1
		s.Status = corev1alpha1.ShardStatus{}
		defaultURLs(s)
	},
	PrepareUpdate: func(s, old shard) {
		s.Status = old.Status
		defaultURLs(s)
		if !equality.Semantic.DeepEqual(s.Spec, old.Spec) {
			s.Generation = old.Generation + 1
		}
	},
	Validate: validateShard,
	Warn: func(s, old shard) (warnings []string) {
		if old == nil {
			old = &corev1alpha1.Shard{}
		}
		if at := s.Spec.ExternalURL; at != s.Spec.BaseURL && at != old.Spec.ExternalURL {
			warnings = append(warnings, "spec.externalURL: it is shown, and changes nothing; --shard-base-url of the shard's replicas is the URL that users get")
		}
		if at := s.Spec.VirtualWorkspaceURL; at != s.Spec.BaseURL && at != old.Spec.VirtualWorkspaceURL {
			warnings = append(warnings, "spec.virtualWorkspaceURL: this server has no virtual workspaces, and does not use it")
		}
		return warnings
	},
	Columns: []resource.Column[shard]{
		resource.Name[shard](),
		{Name: "Region", Description: "The label region of the shard", Cell: func(s shard) any { return s.Labels["region"] }},
		{Name: "URL", Description: "URL to directly connect to the shard", Cell: func(s shard) any { return s.Spec.BaseURL }},
		{Name: "External URL", Description: "The URL that users of the shard get, as its Shard object says", Cell: func(s shard) any { return s.Spec.ExternalURL }},
		{Name: "Cordoned", Description: "Whether the shard takes no new logical clusters", Cell: func(s shard) any { return clusters.IsCordoned(s) }},
		resource.Age[shard](),
	},
	Subresources: map[string]resource.Subresource[shard]{"status": shardStatus},
}

var shardStatus = resource.Subresource[shard]{
	Keep:  func(s, old shard) { s.Spec = old.Spec },
	Reset: fieldpath.NewSet(fieldpath.MakePathOrDie("spec")),
}

// defaultURLs does as kcp does: clients reach a shard where its peers do, unless somebody says otherwise.
func defaultURLs(s shard) {
	for _, at := range []*string{&s.Spec.ExternalURL, &s.Spec.VirtualWorkspaceURL} {
		if *at == "" {
			*at = s.Spec.BaseURL
		}
	}
}

func validateShard(s shard) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateURL(s.Spec.BaseURL, spec.Child("baseURL"))
	errs = append(errs, validateURL(s.Spec.ExternalURL, spec.Child("externalURL"))...)
	errs = append(errs, validateURL(s.Spec.VirtualWorkspaceURL, spec.Child("virtualWorkspaceURL"))...)
	for _, replica := range clusters.ReplicasOf(s) {
		errs = append(errs, validateURL(replica, field.NewPath("metadata", "annotations").Key(clusters.ReplicasAnnotation))...)
	}
	return append(errs, ValidateConditions(s.Status.Conditions, field.NewPath("status", "conditions"))...)
}

// validateURL refuses what could not be followed by /clusters/<name>, and what is not encrypted: shards send secrets
// there.
func validateURL(text string, path *field.Path) field.ErrorList {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return field.ErrorList{field.Invalid(path, text, "must be the URL of a server, as https://shard.example:6443")}
	}
	return nil
}
