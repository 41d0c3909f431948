package statustest

import (
	"reflect"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// At returns an installation of this package as it looks when now is Now. It changes the one that it is given.
func At(of status.Installation, now time.Time) status.Installation {
	shift(reflect.ValueOf(&of).Elem(), now.Sub(Now))
	return of
}

// shift moves all times in a value, unless they are zero.
func shift(v reflect.Value, by time.Duration) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		if at := v.Interface().(time.Time); !at.IsZero() {
			v.Set(reflect.ValueOf(at.Add(by)))
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			shift(v.Elem(), by)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			shift(v.Field(i), by)
		}
	case reflect.Slice:
		for i := range v.Len() {
			shift(v.Index(i), by)
		}
	}
}
