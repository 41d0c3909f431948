package core

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

var secrets = resource.Definition[*corev1.Secret]{
	GVR:           corev1.SchemeGroupVersion.WithResource("secrets"),
	Namespaced:    true,
	List:          &corev1.SecretList{},
	Name:          validation.NameIsDNSSubdomain,
	Unconditional: true,
	Default:       setSecretDefaults,
	PrepareCreate: setSecretDefaults,
	PrepareUpdate: func(s, old *corev1.Secret) {
		if s.Type == "" {
			s.Type = old.Type
		}
		setSecretDefaults(s)
	},
	Validate:       validateSecret,
	ValidateCreate: validateNewSecret,
	ValidateUpdate: validateSecretUpdate,
	Fields:         func(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} },
	Columns: []resource.Column[*corev1.Secret]{
		resource.Name[*corev1.Secret](),
		{Name: "Type", Description: corev1.Secret{}.SwaggerDoc()["type"], Cell: func(s *corev1.Secret) any { return string(s.Type) }},
		{Name: "Data", Type: "integer", Description: "How many keys it has", Cell: func(s *corev1.Secret) any { return int64(len(s.Data)) }},
		resource.Age[*corev1.Secret](),
	},
}

// setSecretDefaults sets the type, and moves the write-only stringData into data.
func setSecretDefaults(s *corev1.Secret) {
	if s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data := field.NewPath("data")
	size := 0
	for key, value := range s.Data {
		errs = append(errs, validateDataKey(key, data)...)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	return append(errs, validateSecretType(s, data)...)
}

// validateSecretType checks that secrets of well-known types have the required data.
func validateSecretType(s *corev1.Secret, data *field.Path) field.ErrorList {
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			return field.ErrorList{field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")}
		}
	case corev1.SecretTypeDockercfg:
		return requireJSON(s, corev1.DockerConfigKey, data)
	case corev1.SecretTypeDockerConfigJson:
		return requireJSON(s, corev1.DockerConfigJsonKey, data)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			return field.ErrorList{
				field.Required(data.Key(corev1.BasicAuthUsernameKey), "or the password"),
				field.Required(data.Key(corev1.BasicAuthPasswordKey), "or the user name"),
			}
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			return field.ErrorList{field.Required(data.Key(corev1.SSHAuthPrivateKey), "")}
		}
	case corev1.SecretTypeTLS:
		return append(require(s, corev1.TLSCertKey, data), require(s, corev1.TLSPrivateKeyKey, data)...)
	}
	return nil
}

// validateNewSecret refuses Secrets that wait for a token. Nothing here fills them, and such a token would never end.
func validateNewSecret(s *corev1.Secret) field.ErrorList {
	if s.Type != corev1.SecretTypeServiceAccountToken {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("type"), fmt.Sprintf(
		"tokens of service accounts are not kept in Secrets here: run kubectl create token %s; to end one before its time, bind it to a Secret of another type (--bound-object-kind=Secret) and delete that",
		s.Annotations[corev1.ServiceAccountNameKey]))}
}

func require(s *corev1.Secret, key string, data *field.Path) field.ErrorList {
	if _, ok := s.Data[key]; !ok {
		return field.ErrorList{field.Required(data.Key(key), "")}
	}
	return nil
}

func requireJSON(s *corev1.Secret, key string, data *field.Path) field.ErrorList {
	if errs := require(s, key, data); errs != nil {
		return errs
	}
	if !json.Valid(s.Data[key]) {
		// The error must not repeat the value, which is secret.
		return field.ErrorList{field.Invalid(data.Key(key), "<secret contents redacted>", "is not JSON")}
	}
	return nil
}

func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := validation.ValidateImmutableField(s.Type, old.Type, field.NewPath("type"))
	if old.Immutable == nil || !*old.Immutable {
		return errs
	}
	if s.Immutable == nil || !*s.Immutable {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), fieldIsImmutable))
	}
	if !equality.Semantic.DeepEqual(s.Data, old.Data) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), fieldIsImmutable))
	}
	return errs
}
