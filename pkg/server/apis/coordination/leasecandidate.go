package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

var leaseCandidates = resource.Definition[*coordinationv1beta1.LeaseCandidate]{
	GVR:            coordinationv1beta1.SchemeGroupVersion.WithResource("leasecandidates"),
	Namespaced:     true,
	List:           &coordinationv1beta1.LeaseCandidateList{},
	Name:           validation.NameIsDNSSubdomain,
	CreateOnUpdate: true,
	Validate: func(c *coordinationv1beta1.LeaseCandidate) field.ErrorList {
		return validateCandidateSpec(&c.Spec, field.NewPath("spec"))
	},
	ValidateUpdate: func(c, old *coordinationv1beta1.LeaseCandidate) field.ErrorList {
		return validation.ValidateImmutableField(c.Spec.LeaseName, old.Spec.LeaseName, field.NewPath("spec", "leaseName"))
	},
	Columns: []resource.Column[*coordinationv1beta1.LeaseCandidate]{
		resource.Name[*coordinationv1beta1.LeaseCandidate](),
		column("LeaseName", "leaseName", func(s *coordinationv1beta1.LeaseCandidateSpec) string { return s.LeaseName }),
		column("BinaryVersion", "binaryVersion", func(s *coordinationv1beta1.LeaseCandidateSpec) string { return s.BinaryVersion }),
		column("EmulationVersion", "emulationVersion", func(s *coordinationv1beta1.LeaseCandidateSpec) string { return s.EmulationVersion }),
		column("Strategy", "strategy", func(s *coordinationv1beta1.LeaseCandidateSpec) string { return string(s.Strategy) }),
		resource.Age[*coordinationv1beta1.LeaseCandidate](),
	},
}

func column(name, of string, get func(*coordinationv1beta1.LeaseCandidateSpec) string) resource.Column[*coordinationv1beta1.LeaseCandidate] {
	return resource.Column[*coordinationv1beta1.LeaseCandidate]{
		Name:        name,
		Description: coordinationv1beta1.LeaseCandidateSpec{}.SwaggerDoc()[of],
		Cell:        func(c *coordinationv1beta1.LeaseCandidate) any { return get(&c.Spec) },
	}
}

func validateCandidateSpec(spec *coordinationv1beta1.LeaseCandidateSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.LeaseName == "" {
		errs = append(errs, field.Required(path.Child("leaseName"), ""))
	} else {
		for _, msg := range validation.NameIsDNSSubdomain(spec.LeaseName, false) {
			errs = append(errs, field.Invalid(path.Child("leaseName"), spec.LeaseName, msg))
		}
	}
	errs = append(errs, validateVersions(spec, path)...)
	if spec.Strategy == "" {
		return append(errs, field.Required(path.Child("strategy"), ""))
	}
	return append(errs, validateStrategy(spec.Strategy, path.Child("strategy"))...)
}

func validateVersions(spec *coordinationv1beta1.LeaseCandidateSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var binary, emulation *version.Version
	if spec.BinaryVersion == "" {
		errs = append(errs, field.Required(path.Child("binaryVersion"), ""))
	} else {
		binary, errs = parse(spec.BinaryVersion, path.Child("binaryVersion"), errs)
	}
	switch {
	case spec.EmulationVersion != "":
		emulation, errs = parse(spec.EmulationVersion, path.Child("emulationVersion"), errs)
	case spec.Strategy == coordinationv1.OldestEmulationVersion:
		errs = append(errs, field.Required(path.Child("emulationVersion"), "must be specified when `strategy` is 'OldestEmulationVersion'"))
	}
	if binary != nil && emulation != nil && binary.LessThan(emulation) {
		errs = append(errs, field.Invalid(path.Child("binaryVersion"), spec.BinaryVersion, "must be greater than or equal to `emulationVersion`"))
	}
	return errs
}

// parse parses a semantic version, and appends to errs if value is none. A leading "v" is not allowed.
func parse(value string, path *field.Path, errs field.ErrorList) (*version.Version, field.ErrorList) {
	if value[0] == 'v' {
		return nil, append(errs, field.Invalid(path, value, "must not begin with 'v'"))
	}
	v, err := version.ParseSemantic(value)
	if err != nil {
		return nil, append(errs, field.Invalid(path, value, "is no semantic version"))
	}
	return v, errs
}
