package wire_test

import (
	"bytes"
	"reflect"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
)

// TestJobTravelsWhole sets every field of a Job, its options too, and expects all of them on the other side.
func TestJobTravelsWhole(t *testing.T) {
	job := new(wire.Job)
	fill(t, reflect.ValueOf(job).Elem())
	var sent bytes.Buffer
	must.Do(t, wire.NewWriter(&sent).Write(job))
	got, err := wire.NewReader(&sent).Read()
	must.Do(t, err)
	if !reflect.DeepEqual(got, job) {
		t.Errorf("sent %+v\n got %+v", job, got)
	}
}

// fill gives v, and all that it consists of, a value other than zero.
func fill(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.String:
		v.SetString("s")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(0.5)
	default:
		t.Fatalf("the test cannot fill a %s", v.Type())
	}
}
