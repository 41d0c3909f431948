package resource

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Column is a column that kubectl prints.
type Column[T Object] struct {
	Name        string
	Description string
	// Type is "string" unless set.
	Type string
	// Wide columns are printed only with -o wide.
	Wide bool
	// Cell returns the value for one object. Among does so in its place, if the value depends on what is known of
	// shards.
	Cell   func(obj T) any
	Among  func(shards *Shards, obj T) any
	format string
}

// Shards is what a server knows of the shards of its installation when it prints a table.
type Shards struct {
	// Own is the name of the server's own shard.
	Own string
	// Answers reports whether a shard is the own one, or is heard. Nil: there is no other one.
	Answers func(shard string) bool
}

// Name is the first column of most tables.
func Name[T Object]() Column[T] {
	return Column[T]{
		Name:        "Name",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
		format:      "name",
		Cell:        func(obj T) any { return obj.GetName() },
	}
}

// Age is the last column of nearly all tables.
func Age[T Object]() Column[T] {
	return Column[T]{
		Name:        "Age",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		Cell:        func(obj T) any { return Since(obj.GetCreationTimestamp().Time) },
	}
}

// Since formats how long ago t was, as kubectl does.
func Since(t time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t))
}

type tableConvertor[T Object] struct {
	columns []Column[T]
	shards  *Shards
}

func (c tableConvertor[T]) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	out := &metav1.Table{}
	if opts, ok := options.(*metav1.TableOptions); !ok || !opts.NoHeaders {
		out.ColumnDefinitions = c.headers()
	}
	if list, err := meta.ListAccessor(object); err == nil {
		out.ResourceVersion = list.GetResourceVersion()
		out.Continue = list.GetContinue()
		out.RemainingItemCount = list.GetRemainingItemCount()
	} else if one, err := meta.CommonAccessor(object); err == nil {
		out.ResourceVersion = one.GetResourceVersion()
	}
	rows, err := table.MetaToTableRow(object, c.row)
	if err != nil {
		return nil, fmt.Errorf("table of %T: %w", object, err)
	}
	out.Rows = rows
	return out, nil
}

func (c tableConvertor[T]) headers() []metav1.TableColumnDefinition {
	var out []metav1.TableColumnDefinition
	for _, column := range c.columns {
		header := metav1.TableColumnDefinition{Name: column.Name, Type: column.Type, Format: column.format, Description: column.Description}
		if header.Type == "" {
			header.Type = "string"
		}
		if column.Wide {
			header.Priority = 1
		}
		out = append(out, header)
	}
	return out
}

func (c tableConvertor[T]) row(obj runtime.Object, _ metav1.Object, _, _ string) ([]any, error) {
	object, ok := obj.(T)
	if !ok {
		return nil, fmt.Errorf("a %T is not of this table", obj)
	}
	cells := make([]any, 0, len(c.columns))
	for _, column := range c.columns {
		if column.Among != nil {
			cells = append(cells, column.Among(c.shards, object))
		} else {
			cells = append(cells, column.Cell(object))
		}
	}
	return cells, nil
}

var _ rest.TableConvertor = tableConvertor[Object]{}
